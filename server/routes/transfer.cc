#include "server/routes/transfer.h"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "api/base/model_name.h"
#include "api/ollama/store.h"
#include "api/ollama/transfer.h"
#include "server/routes/progress_stream.h"
#include "server/routes/relay.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace ollama = api::ollama;

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

// Ends the transfer with its client.
class Cancelling {
 public:
  explicit Cancelling(std::shared_ptr<registry::Transfer> transfer) : transfer_(std::move(transfer)) {}
  ~Cancelling() { transfer_->Cancel(); }
  Cancelling(const Cancelling&) = delete;
  Cancelling& operator=(const Cancelling&) = delete;

 private:
  std::shared_ptr<registry::Transfer> transfer_;
};

std::string BodyOf(const registry::News& news) {
  if (news.digest.empty()) return ollama::StatusBody(news.status);
  return ollama::StatusBody(news.status, news.digest, news.total, news.completed);
}

// Its result. The first news are told together with the next, so that what fails at once has a status of its
// own; `at_once`: they are not.
Awaitable<api::Result<void>> Follow(ProgressStream& progress, registry::Transfer& transfer, bool at_once) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  std::vector<registry::News> held;
  bool begun = at_once;
  while (true) {
    const auto result = transfer.result();  // before the news, so that none of them is left
    for (registry::News& news : transfer.TakeNews()) held.push_back(std::move(news));
    const bool succeeded = result && *result;
    begun |= held.size() > 1 || succeeded;
    if (begun) {
      for (const registry::News& news : held) co_await progress.Say(BodyOf(news));
      held.clear();
    }
    if (result) co_return *result;
    timer.expires_after(kBetweenLooks);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

enum class Way { kPull, kPush };

Awaitable<void> Run(registry::Transfers& transfers, Exchange& exchange, Way way) {
  const auto request = ollama::ParseTransfer(exchange.request().body);
  auto name = request ? api::ParseModelName(request->model) : std::unexpected(request.error());
  if (!name) {
    co_await SendError(exchange, name.error());
    co_return;
  }
  exchange.log().model = request->model;
  auto started = way == Way::kPull ? transfers.Pull(*std::move(name), request->insecure)
                                   : transfers.Push(*std::move(name), request->insecure);
  if (!started) {
    co_await SendError(exchange, started.error());
    co_return;
  }
  const Cancelling cancelling(*started);
  ProgressStream progress(exchange, request->stream);
  const auto result = co_await Follow(progress, **started, /*at_once=*/way == Way::kPull);
  if (result) {
    co_await progress.Succeed();
  } else {
    co_await progress.Fail(result.error());
  }
}

}  // namespace

Awaitable<api::Result<void>> FetchModel(registry::Transfers& transfers, api::ModelName name,
                                        ProgressStream& progress) {
  auto started = transfers.Pull(std::move(name), /*insecure=*/false);
  if (!started) co_return std::unexpected(std::move(started.error()));
  const Cancelling cancelling(*started);
  auto result = co_await Follow(progress, **started, /*at_once=*/false);
  co_return result;
}

void AddTransferRoutes(Router& router, registry::Transfers& transfers) {
  router.Add({.method = "POST",
              .path = "/api/pull",
              .handler = [&transfers](Exchange& exchange) { return Run(transfers, exchange, Way::kPull); },
              .watched = true,
              .access = Access::kAdmin});
  router.Add({.method = "POST",
              .path = "/api/push",
              .handler = [&transfers](Exchange& exchange) { return Run(transfers, exchange, Way::kPush); },
              .watched = true,
              .access = Access::kAdmin});
}

}  // namespace quire::server
