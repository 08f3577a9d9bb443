#include "server/routes/transfer.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/base/model_name.h"
#include "api/ollama/store.h"
#include "api/ollama/transfer.h"
#include "server/http/party.h"
#include "server/registry/hub.h"
#include "server/routes/create.h"
#include "server/routes/handlers.h"
#include "server/routes/progress_stream.h"
#include "server/routes/relay.h"
#include "server/store/model_manifest.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace ollama = api::ollama;

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

// Ends the transfer with its client.
class CancelGuard {
 public:
  explicit CancelGuard(std::shared_ptr<registry::Transfer> transfer) : transfer_(std::move(transfer)) {}
  ~CancelGuard() { transfer_->Cancel(); }
  CancelGuard(const CancelGuard&) = delete;
  CancelGuard& operator=(const CancelGuard&) = delete;

 private:
  std::shared_ptr<registry::Transfer> transfer_;
};

std::string BodyOf(const registry::TransferProgress& update) {
  if (update.digest.empty()) return ollama::StatusBody(update.status);
  return ollama::StatusBody(update.status, update.digest, update.total, update.completed);
}

// Returns the result of the transfer. The first update is sent together with the second, so that a transfer
// that fails immediately has its own HTTP status; `at_once` sends it immediately.
Awaitable<api::Result<void>> Follow(ProgressStream& progress, registry::Transfer& transfer, bool at_once) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  std::vector<registry::TransferProgress> pending;
  bool begun = at_once;
  while (true) {
    const auto result = transfer.result();  // before the updates, so that none is lost
    for (registry::TransferProgress& update : transfer.TakeProgress()) pending.push_back(std::move(update));
    const bool succeeded = result && *result;
    begun |= pending.size() > 1 || succeeded;
    if (begun) {
      for (const registry::TransferProgress& update : pending) co_await progress.Send(BodyOf(update));
      pending.clear();
    }
    if (result) co_return *result;
    timer.expires_after(kBetweenLooks);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

// Brings the files of a hub's repository and makes the model of them.
Awaitable<api::Result<void>> PullFromHub(Services& services, registry::Transfers& transfers,
                                         api::ModelName name, registry::HubRequest hub, fair::PartyId party,
                                         ProgressStream& progress, bool at_once) {
  ollama::CreateRequest request;
  request.model = name.Display();
  auto started = transfers.PullFiles(std::move(name), hub, party);
  if (!started) co_return std::unexpected(std::move(started.error()));
  const CancelGuard cancel_guard(*started);
  auto result = co_await Follow(progress, **started, at_once);
  if (!result) co_return result;
  registry::FetchedFiles fetched = (*started)->ConsumeFiles();
  if (fetched.unchanged) co_return result;
  for (registry::FetchedFile& file : fetched.files)
    request.files.push_back({std::move(file.path), std::move(file.digest)});
  request.quantize = std::move(fetched.quantize);
  std::vector<Layer> source = {std::move(fetched.source)};
  std::vector<std::string> blobs;
  blobs.reserve(request.files.size());
  for (const auto& file : request.files) blobs.push_back(*BlobNameOf(file.digest));
  result = co_await MakeModel(services, std::move(request), party, progress, std::move(source));
  // What is no model today is none tomorrow: it would only be in the way.
  if (!result && (result.error().code == api::ErrorCode::kInvalidArgument ||
                  result.error().code == api::ErrorCode::kUnsupported)) {
    co_await services.models.RemoveUnnamed(std::move(blobs), std::move(party));
  }
  co_return result;
}

enum class Direction { kPull, kPush };

Awaitable<void> Run(Services& services, registry::Transfers& transfers, Exchange& exchange,
                    Direction direction) {
  const auto request = ollama::ParseTransfer(exchange.request().body);
  auto name = request ? api::ParseModelName(request->model) : std::unexpected(request.error());
  if (!name) {
    co_await SendError(exchange, name.error());
    co_return;
  }
  exchange.log().model = request->model;
  if (direction == Direction::kPull && registry::IsOfHub(*name)) {
    ProgressStream progress(exchange, request->stream);
    registry::HubRequest hub{request->hub_token, request->hub_endpoint};
    fair::PartyId party = PartyOf(exchange);
    const auto pulled = co_await PullFromHub(services, transfers, *std::move(name), std::move(hub),
                                             std::move(party), progress, /*at_once=*/false);
    if (pulled) {
      co_await progress.Succeed();
    } else {
      co_await progress.Fail(pulled.error());
    }
    co_return;
  }
  auto started = direction == Direction::kPull
                     ? transfers.Pull(*std::move(name), request->insecure, PartyOf(exchange))
                     : transfers.Push(*std::move(name), request->insecure, PartyOf(exchange));
  if (!started) {
    co_await SendError(exchange, started.error());
    co_return;
  }
  const CancelGuard cancel_guard(*started);
  ProgressStream progress(exchange, request->stream);
  const auto result = co_await Follow(progress, **started, /*at_once=*/direction == Direction::kPull);
  if (result) {
    co_await progress.Succeed();
  } else {
    co_await progress.Fail(result.error());
  }
}

}  // namespace

Awaitable<api::Result<void>> FetchModel(Services& services, registry::Transfers& transfers,
                                        api::ModelName name, fair::PartyId party, ProgressStream& progress) {
  if (registry::IsOfHub(name)) {
    registry::HubRequest hub;
    auto pulled = co_await PullFromHub(services, transfers, std::move(name), std::move(hub), std::move(party),
                                       progress, /*at_once=*/false);
    co_return pulled;
  }
  auto started = transfers.Pull(std::move(name), /*insecure=*/false, party);
  if (!started) co_return std::unexpected(std::move(started.error()));
  const CancelGuard cancel_guard(*started);
  auto result = co_await Follow(progress, **started, /*at_once=*/false);
  co_return result;
}

void AddTransferRoutes(Router& router, Services& services, registry::Transfers& transfers) {
  router.Add(
      {.method = "POST",
       .path = "/api/pull",
       .handler = [&services, &transfers](
                      Exchange& exchange) { return Run(services, transfers, exchange, Direction::kPull); },
       .cancel_on_disconnect = true,
       .body_bytes_max = kNameBodyBytesMax,
       .access = Access::kAdmin},
      {"ollama", "Fetch a model from its registry", "Transfer", kJsonOrLines});
  router.Add(
      {.method = "POST",
       .path = "/api/push",
       .handler = [&services, &transfers](
                      Exchange& exchange) { return Run(services, transfers, exchange, Direction::kPush); },
       .cancel_on_disconnect = true,
       .body_bytes_max = kNameBodyBytesMax,
       .access = Access::kAdmin},
      {"ollama", "Send a model to its registry", "Transfer", kJsonOrLines});
}

}  // namespace quire::server
