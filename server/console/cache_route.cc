#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/console/cache_view.h"
#include "server/console/change_stream.h"
#include "server/console/console.h"
#include "server/routes/handlers.h"

namespace quire::server {
namespace {

constexpr std::string_view kPath = "/quire/cache/";
constexpr int32_t kNodesMax = 512;

// The request's cache_salt: prefixes that were computed with one are shown to whoever names it.
api::Result<std::string> SaltOf(std::string_view query) {
  constexpr std::string_view kName = "cache_salt=";
  std::string salt;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    if (!pair.starts_with(kName) || !PercentDecode(pair.substr(kName.size()), salt)) {
      return api::Fail(api::ErrorCode::kInvalidArgument, "the only parameter is cache_salt", "cache_salt");
    }
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
  }
  return salt;
}

// The prefixes of one model as one viewer sees them.
class CacheChanges : public ChangeSource {
 public:
  CacheChanges(const CacheSources& sources, scheduler::ModelSpec spec, const HttpRequest& request,
               std::string salt)
      : sources_(sources), spec_(std::move(spec)) {
    question_.isolation = IsolationOf(request, std::move(salt));
    question_.others = request.admin;
    question_.nodes_max = kNodesMax;
  }

  Awaitable<std::optional<std::string>> Next() override {
    auto view = co_await sources_.inspect(spec_.key, question_, pid_);
    if (!view) {
      const bool was_shown = std::exchange(pid_, 0) == 0 && std::exchange(shown_, true);
      if (was_shown) co_return std::nullopt;
      co_return EncodeCache(spec_.name, nullptr);
    }
    shown_ = true;
    if (view->cache.unchanged) co_return std::nullopt;
    pid_ = view->runner_pid;
    question_.known_version = view->cache.version;
    co_return EncodeCache(spec_.name, &*view);
  }

 private:
  const CacheSources& sources_;
  const scheduler::ModelSpec spec_;
  api::ipc::InspectCache question_;
  int pid_ = 0;  // of the runner that answered last; 0: the model was not loaded
  bool shown_ = false;
};

Awaitable<void> Cache(Exchange& exchange, const CacheSources& sources, StreamCounts& streams) {
  const HttpRequest& request = exchange.request();
  const std::string name = request.path.substr(kPath.size());
  auto salt = SaltOf(request.query);
  if (!salt) {
    co_await SendError(exchange, salt.error());
    co_return;
  }
  // Not as the request's stored_model: looking is no request of the model.
  exchange.log().model = name;
  auto spec = co_await sources.find_model(name);
  if (!spec) {
    co_await SendError(exchange, spec.error());
    co_return;
  }
  CacheChanges changes(sources, *std::move(spec), request, *std::move(salt));
  if (request.Accepts("accept", "text/event-stream")) {
    co_await StreamChanges(exchange, changes, sources.draining, streams);
    co_return;
  }
  auto body = co_await changes.Next();
  HttpResponse response{.body = std::move(body).value_or("{}"), .headers = {{"Cache-Control", "no-store"}}};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddCacheRoutes(Router& router, const CacheSources& sources) {
  constexpr uint64_t kBodyBytesMax = 1024;  // nobody needs one
  const auto streams = std::make_shared<StreamCounts>();
  // Not cancel_on_disconnect, as /quire/now.
  router.Add(
      {.method = "GET",
       .path = std::string(kPath),
       .handler = [&sources, streams](Exchange& exchange) { return Cache(exchange, sources, *streams); },
       .body_bytes_max = kBodyBytesMax});
}

}  // namespace quire::server
