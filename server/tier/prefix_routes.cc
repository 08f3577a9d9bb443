#include "server/tier/prefix_routes.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/sha256.h"
#include "server/routes/blocking.h"
#include "server/routes/gathered_body.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"
#include "server/tier/isolation_key.h"
#include "server/tier/prefix_archive.h"
#include "server/tier/prefix_view.h"

namespace quire::server {
namespace {

constexpr std::string_view kPrefixesPath = "/quire/prefixes";
constexpr std::string_view kFileSuffix = "/file";
constexpr uint64_t kImportBytesMax = uint64_t{1} << 40;

using Tier = SnapshotService::Opened;

uint64_t UnixNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

HttpResponse PrefixReply(std::string body) {
  return {.body = std::move(body), .headers = {{"Cache-Control", "no-store"}}};
}

// The tier, or nothing and the error is sent.
Awaitable<std::optional<Tier>> OpenTier(Exchange& exchange, const PrefixSources& sources) {
  auto tier = sources.open();
  if (tier) co_return *std::move(tier);
  co_await SendError(exchange, tier.error());
  co_return std::nullopt;
}

Awaitable<void> SendPrefixReply(Exchange& exchange, api::Result<std::string> body) {
  if (!body) {
    co_await SendError(exchange, body.error());
    co_return;
  }
  HttpResponse response = PrefixReply(*std::move(body));
  co_await exchange.Send(std::move(response));
}

Awaitable<void> ListPrefixes(Exchange& exchange, const PrefixSources& sources) {
  const auto tier = co_await OpenTier(exchange, sources);
  if (!tier) co_return;
  auto work = [&tier] { return EncodePrefixes(tier->tier->stats(), tier->tier->Prefixes(), UnixNs()); };
  std::string body = co_await RunFor(exchange, sources.pools->reads, std::move(work));
  HttpResponse response = PrefixReply(std::move(body));
  co_await exchange.Send(std::move(response));
}

// The id between "/quire/prefixes/" and what the route's path has behind it.
std::string IdIn(const Exchange& exchange, std::string_view after = {}) {
  std::string_view path = exchange.request().path;
  path.remove_suffix(after.size());
  return std::string(path.substr(kPrefixesPath.size() + 1));
}

Awaitable<void> ShowPrefix(Exchange& exchange, const PrefixSources& sources) {
  const auto tier = co_await OpenTier(exchange, sources);
  if (!tier) co_return;
  auto work = [&tier, id = IdIn(exchange)]() -> api::Result<std::string> {
    const auto key = FindPrefix(tier->tier->Prefixes(), id);
    if (!key) return std::unexpected(key.error());
    const auto prefix = tier->tier->PrefixOf(*key);
    if (!prefix) return api::Fail(api::ErrorCode::kNotFound, "no prefix " + id, "id");
    return EncodePrefix(*prefix, UnixNs());
  };
  auto body = co_await RunFor(exchange, sources.pools->reads, std::move(work));
  co_await SendPrefixReply(exchange, std::move(body));
}

Awaitable<void> ExportPrefix(Exchange& exchange, const PrefixSources& sources) {
  const auto tier = co_await OpenTier(exchange, sources);
  if (!tier) co_return;
  using Opened = api::Result<std::unique_ptr<PrefixExport>>;
  auto open = [&tier, id = IdIn(exchange, kFileSuffix), tenant = TenantOf(exchange.request())]() -> Opened {
    const auto key = FindPrefix(tier->tier->Prefixes(), id);
    if (!key) return std::unexpected(key.error());
    // It has the prompt's tokens, which an admin sees no more than others (as in /quire/cache).
    if (const auto prefix = tier->tier->PrefixOf(*key);
        prefix && TenantIn(prefix->origin.isolation) != tenant)
      return api::Fail(api::ErrorCode::kForbidden, "the prefix belongs to another API key");
    return PrefixExport::Open(*tier->tier, *key);
  };
  auto archive = co_await RunFor(exchange, sources.pools->reads, std::move(open));
  if (!archive) {
    co_await SendError(exchange, archive.error());
    co_return;
  }
  for (;;) {
    auto read = [&archive] { return (*archive)->Next(); };
    auto bytes = co_await RunFor(exchange, sources.pools->reads, std::move(read));
    if (!bytes) {
      // The stream ends without its end, which is how a client sees it.
      exchange.log().error = bytes.error().message;
      co_return;
    }
    if (bytes->empty()) break;
    const bool sent = co_await exchange.Stream("application/octet-stream", *std::move(bytes));
    if (!sent) co_return;
  }
  co_await exchange.EndStream();
}

// ?key=NAME: the prefix becomes that key's; ?key= without a name: nobody's, for a daemon without keys.
api::Result<std::optional<std::string>> TenantOfQuery(std::string_view query) {
  constexpr std::string_view kKey = "key=";
  if (query.empty()) return std::nullopt;
  std::string name;
  if (!query.starts_with(kKey) || query.find('&') != std::string_view::npos ||
      !PercentDecode(query.substr(kKey.size()), name)) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "the only parameter is key", "key");
  }
  return name.empty() ? std::string() : api::Sha256Of("key:" + name);
}

// Nothing: the client is gone, or has been answered.
Awaitable<std::optional<api::Result<Imported>>> ReceiveArchive(Exchange& exchange, WorkKind& pool,
                                                               PrefixImport& import) {
  const size_t write_bytes = ReserveGathered(exchange);
  while (true) {
    auto gathered = co_await Gather(exchange, write_bytes);
    if (!gathered) co_return std::nullopt;
    if (gathered->empty()) break;
    auto write = [&import, bytes = *std::move(gathered)] { return import.Write(bytes); };
    const auto written = co_await RunFor(exchange, pool, std::move(write));
    if (!written) co_return std::unexpected(written.error());
  }
  auto finish = [&import] { return import.Finish(); };
  auto imported = co_await RunFor(exchange, pool, std::move(finish));
  co_return imported;
}

// One whose client leaves removes its file on the pool.
std::shared_ptr<PrefixImport> MakeImport(const Tier& opened, WorkKind& pool, const fair::PartyId& party,
                                         PrefixImport::Settings settings) {
  const auto destroy = [&pool, tier = opened.tier, party](PrefixImport* last) {
    pool.Post([tier, owned = std::unique_ptr<PrefixImport>(last)]() mutable { owned.reset(); }, party);
  };
  return {new PrefixImport(*opened.tier, std::move(settings)), destroy};
}

Awaitable<void> ImportPrefixes(Exchange& exchange, const PrefixSources& sources) {
  const auto tier = co_await OpenTier(exchange, sources);
  if (!tier) co_return;
  auto tenant = TenantOfQuery(exchange.request().query);
  if (!tenant) {
    co_await SendError(exchange, tenant.error());
    co_return;
  }
  WorkKind& pool = sources.pools->blobs;
  const auto import =
      MakeImport(*tier, pool, PartyOf(exchange), {.program = tier->program, .tenant = *std::move(tenant)});
  const std::optional<api::Result<Imported>> imported = co_await ReceiveArchive(exchange, pool, *import);
  if (!imported) co_return;
  if (!*imported) {
    co_await SendError(exchange, imported->error());
    co_return;
  }
  HttpResponse response = PrefixReply(EncodeImported(**imported));
  co_await exchange.Send(std::move(response));
}

Awaitable<void> PrunePrefixes(Exchange& exchange, const PrefixSources& sources) {
  const auto tier = co_await OpenTier(exchange, sources);
  if (!tier) co_return;
  auto request = ParsePrune(exchange.request().body);
  if (!request) {
    co_await SendError(exchange, request.error());
    co_return;
  }
  auto work = [&tier, request = *std::move(request)]() -> api::Result<std::string> {
    if (request.all) return EncodePruned(tier->tier->PruneAll());
    const auto ids = SelectPrefixes(tier->tier->Prefixes(), request, UnixNs());
    if (!ids) return std::unexpected(ids.error());
    return EncodePruned(tier->tier->Prune(*ids));
  };
  auto body = co_await RunFor(exchange, sources.pools->blobs, std::move(work));
  co_await SendPrefixReply(exchange, std::move(body));
}

}  // namespace

void AddPrefixRoutes(Router& router, const PrefixSources& sources) {
  const auto add = [&](const char* method, const char* rest, uint64_t streamed_bytes, auto handler,
                       Operation operation) {
    Route route{.method = method,
                .path = std::string(kPrefixesPath) + rest,
                .handler = [&sources, handler](Exchange& exchange) { return handler(exchange, sources); }};
    route.streamed_body_bytes = streamed_bytes;
    if (streamed_bytes == 0) route.body_bytes_max = kNameBodyBytesMax;
    route.access = Access::kAdmin;
    operation.tag = "console";
    router.Add(std::move(route), std::move(operation));
  };
  add("GET", "", 0, ListPrefixes,
      {.summary = "Computed prompt prefixes on disk: sizes, models, last use, hits"});
  add("GET", "/{id}/file", 0, ExportPrefix,
      {.summary = "One prefix as a file for another machine",
       .reply = "application/octet-stream",
       .parameters = {"prefix"}});
  add("GET", "/{id}", 0, ShowPrefix,
      {.summary = "One prefix, and what it depends on", .parameters = {"prefix"}});
  add("POST", "", kImportBytesMax, ImportPrefixes,
      {.summary = "Take in exported prefixes: the body is the file", .parameters = {"key"}});
  add("DELETE", "", 0, PrunePrefixes, {.summary = "Remove prefixes from disk", .body = "PrunePrefixes"});
}

}  // namespace quire::server
