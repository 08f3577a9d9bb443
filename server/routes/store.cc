// Names and blobs of the store: /api/copy, /api/delete, /api/blobs/{digest}.
#include "api/ollama/store.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/routes/create.h"
#include "server/routes/gathered_body.h"
#include "server/routes/handlers.h"
#include "server/routes/relay.h"
#include "server/routes/request_steps.h"
#include "server/store/model_manifest.h"

namespace quire::server {
namespace {

namespace ollama = api::ollama;

constexpr std::string_view kBlobPath = "/api/blobs/";
// Templates, licenses and messages; a longer text could not be read back from the store.
constexpr uint64_t kCreateBodyBytesMax = uint64_t{16} << 20;
constexpr uint64_t kBlobBytesMax = uint64_t{1} << 42;

HttpResponse Empty(int status) { return {.status = status, .content_type = {}}; }

Awaitable<void> Copy(Services& services, Exchange& exchange) {
  const auto request = co_await ParseBody(services, exchange, ollama::ParseCopy);
  if (!request) co_return;
  exchange.log().model = request->source;
  const auto copied = co_await services.models.Copy(request->source, request->destination, PartyOf(exchange));
  if (!copied) {
    co_await SendError(exchange, copied.error());
    co_return;
  }
  co_await exchange.Send(Empty(200));
}

Awaitable<void> Delete(Services& services, Exchange& exchange) {
  const auto name = co_await ParseBody(services, exchange, ollama::ParseDelete);
  if (!name) co_return;
  exchange.log().model = *name;
  const auto deleted = co_await services.models.Delete(*name, PartyOf(exchange));
  if (!deleted) {
    co_await SendError(exchange, deleted.error());
    co_return;
  }
  // A copy is the same model to the scheduler.
  if (!deleted->shared) services.backend.Unload(deleted->digest);
  co_await exchange.Send(Empty(200));
}

// The blob that the path names, or the error.
api::Result<std::string> BlobOf(const Exchange& exchange) {
  const std::string digest = exchange.request().path.substr(kBlobPath.size());
  const auto blob = BlobNameOf(digest);
  if (!blob) return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("invalid digest \"{}\"", digest));
  return *blob;
}

// Whether the blob is there. Then it stays for the create of this client.
Awaitable<bool> HasPromised(Services& services, Exchange& exchange, std::string blob) {
  const fair::PartyId& party = PartyOf(exchange);
  services.models.users().Promise(blob, party, BlobUsers::Clock::now());
  const bool there = co_await services.models.HasBlob(blob, party);
  if (!there) services.models.users().Withdraw(blob, party);
  co_return there;
}

Awaitable<void> LookUpBlob(Services& services, Exchange& exchange) {
  const auto blob = BlobOf(exchange);
  if (!blob) {
    co_await SendError(exchange, blob.error());
    co_return;
  }
  const bool there = co_await HasPromised(services, exchange, *blob);
  co_await exchange.Send(Empty(there ? 200 : 404));
}

// The body into the store. False: the client's body could not be had.
Awaitable<api::Result<bool>> Receive(Services& services, Exchange& exchange, BlobUpload& upload,
                                     std::string blob) {
  const size_t write_bytes = ReserveGathered(exchange);
  while (true) {
    auto bytes = co_await Gather(exchange, write_bytes);
    if (!bytes) co_return false;
    if (bytes->empty()) break;
    const auto appended = co_await services.models.Append(upload, *std::move(bytes), PartyOf(exchange));
    if (!appended) co_return std::unexpected(appended.error());
  }
  const auto finished = co_await services.models.FinishUpload(upload, std::move(blob), PartyOf(exchange));
  if (!finished) co_return std::unexpected(finished.error());
  co_return true;
}

Awaitable<void> PutBlob(Services& services, Exchange& exchange) {
  const auto blob = BlobOf(exchange);
  if (!blob) {
    co_await SendError(exchange, blob.error());
    co_return;
  }
  const fair::PartyId& party = PartyOf(exchange);
  const bool there = co_await HasPromised(services, exchange, *blob);
  if (there) {
    co_await exchange.Send(Empty(200));
    co_return;
  }
  auto upload = co_await services.models.StartUpload(party);
  if (!upload) {
    co_await SendError(exchange, upload.error());
    co_return;
  }
  services.models.users().Promise(*blob, party, BlobUsers::Clock::now());
  const auto received = co_await Receive(services, exchange, **upload, *blob);
  if (!received || !*received) services.models.users().Withdraw(*blob, party);
  co_await services.models.Discard(*std::move(upload), party);
  if (!received) {
    co_await SendError(exchange, received.error());
  } else if (*received) {
    co_await exchange.Send(Empty(201));
  }
}

}  // namespace

void AddStoreRoutes(Router& router, Services& services) {
  router.Add({.method = "POST",
              .path = "/api/create",
              .handler = [&services](Exchange& exchange) { return Create(services, exchange); },
              .cancel_on_disconnect = true,
              .body_bytes_max = kCreateBodyBytesMax,
              .access = Access::kAdmin},
             {"ollama", "Make a model", "Create", kJsonOrLines});
  router.Add({.method = "POST",
              .path = "/api/copy",
              .handler = [&services](Exchange& exchange) { return Copy(services, exchange); },
              .body_bytes_max = kNameBodyBytesMax,
              .access = Access::kAdmin},
             {"ollama", "Copy a model", "Copy", /*reply=*/{}});
  router.Add({.method = "DELETE",
              .path = "/api/delete",
              .handler = [&services](Exchange& exchange) { return Delete(services, exchange); },
              .body_bytes_max = kNameBodyBytesMax,
              .access = Access::kAdmin},
             {"ollama", "Delete a model", "Delete", /*reply=*/{}});
  router.Add({.method = "HEAD",
              .path = std::string(kBlobPath) + "{digest}",
              .handler = [&services](Exchange& exchange) { return LookUpBlob(services, exchange); },
              .access = Access::kAdmin},
             {.tag = "ollama", .summary = "Whether a blob is stored", .reply = {}, .parameters = {"digest"}});
  router.Add({.method = "POST",
              .path = std::string(kBlobPath) + "{digest}",
              .handler = [&services](Exchange& exchange) { return PutBlob(services, exchange); },
              .streamed_body_bytes = kBlobBytesMax,
              .access = Access::kAdmin},
             {.tag = "ollama",
              .summary = "Store a blob: the body is its bytes",
              .reply = {},
              .parameters = {"digest"},
              .status = 201});
}

}  // namespace quire::server
