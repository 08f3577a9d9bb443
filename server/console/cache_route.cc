#include <boost/asio/this_coro.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "scheduler/job_slots.h"
#include "server/console/cache_view.h"
#include "server/console/change_stream.h"
#include "server/console/console.h"
#include "server/http/party.h"
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

// What all viewers have together. I/O thread only.
class Viewers {
 public:
  fair::Quota& streams() { return streams_; }
  // A turn to ask a runner, one question of a party at a time: a runner answers between two steps, and has
  // room for kQuestionsMax and more.
  Awaitable<api::Result<scheduler::JobSlots::Slot>> TurnOf(fair::PartyId party) {
    using scheduler::JobSlots;
    if (turns_ == nullptr) {
      turns_ = std::make_shared<JobSlots>(
          co_await boost::asio::this_coro::executor,
          JobSlots::Limits{.slots = kQuestionsMax, .slots_of_one = 1, .waiting_max = JobSlots::kNoLimit});
    }
    auto turn = co_await JobSlots::Acquire(turns_, std::move(party));
    co_return turn;
  }

 private:
  static constexpr int32_t kQuestionsMax = 32;

  fair::Quota streams_{kStreamLimits};
  std::shared_ptr<scheduler::JobSlots> turns_;  // once the thread's executor is known
};

// The prefixes of one model as one viewer sees them.
class CacheChanges : public ChangeSource {
 public:
  CacheChanges(const CacheSources& sources, Viewers& viewers, scheduler::ModelSpec spec, Exchange& exchange,
               std::string salt)
      : sources_(sources), viewers_(viewers), spec_(std::move(spec)), party_(PartyOf(exchange)) {
    question_.isolation = IsolationOf(exchange.request(), std::move(salt));
    question_.others = exchange.request().admin;
    question_.nodes_max = kNodesMax;
  }

  // Also for an unloaded model, which is no error. kOverloaded: it could not be asked.
  Awaitable<api::Result<std::string>> Now() {
    const auto view = co_await Inspect();
    if (view) co_return EncodeCache(spec_.name, &*view);
    if (!IsUnloaded(view.error())) co_return std::unexpected(view.error());
    co_return EncodeCache(spec_.name, nullptr);
  }

  Awaitable<std::optional<std::string>> Next() override {
    const auto view = co_await Inspect();
    if (!view) {
      if (!IsUnloaded(view.error())) co_return std::nullopt;  // it is asked again
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
  static bool IsUnloaded(const api::Error& error) {
    return error.code == api::ErrorCode::kNotFound || error.code == api::ErrorCode::kUnavailable;
  }

  Awaitable<api::Result<scheduler::CacheView>> Inspect() {
    const auto turn = co_await viewers_.TurnOf(party_);
    if (!turn) co_return std::unexpected(turn.error());
    auto view = co_await sources_.inspect(spec_.key, question_, pid_);
    co_return view;
  }

  const CacheSources& sources_;
  Viewers& viewers_;
  const scheduler::ModelSpec spec_;
  const fair::PartyId party_;
  api::ipc::InspectCache question_;
  int pid_ = 0;  // of the runner that answered last; 0: the model was not loaded
  bool shown_ = false;
};

Awaitable<void> Cache(Exchange& exchange, const CacheSources& sources, Viewers& viewers) {
  const HttpRequest& request = exchange.request();
  const std::string name = request.path.substr(kPath.size());
  auto salt = SaltOf(request.query);
  if (!salt) {
    co_await SendError(exchange, salt.error());
    co_return;
  }
  // Not as the request's stored_model: looking is no request of the model.
  exchange.log().model = name;
  auto spec = co_await sources.find_model(name, PartyOf(exchange));
  if (!spec) {
    co_await SendError(exchange, spec.error());
    co_return;
  }
  CacheChanges changes(sources, viewers, *std::move(spec), exchange, *std::move(salt));
  if (request.Accepts("accept", "text/event-stream")) {
    co_await StreamChanges(exchange, changes, sources.draining, viewers.streams());
    co_return;
  }
  auto body = co_await changes.Now();
  if (!body) {
    co_await SendError(exchange, body.error());
    co_return;
  }
  HttpResponse response{.body = *std::move(body), .headers = {{"Cache-Control", "no-store"}}};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddCacheRoutes(Router& router, const CacheSources& sources) {
  constexpr uint64_t kBodyBytesMax = 1024;  // nobody needs one
  const auto viewers = std::make_shared<Viewers>();
  // Not cancel_on_disconnect, as /quire/now.
  router.Add(
      {.method = "GET",
       .path = std::string(kPath) + "{model}",
       .handler = [&sources, viewers](Exchange& exchange) { return Cache(exchange, sources, *viewers); },
       .body_bytes_max = kBodyBytesMax},
      {.tag = "console",
       .summary = "Prefixes that the caches of a model hold; for Accept: text/event-stream one event at each "
                  "change",
       .reply = kJsonOrEvents,
       .parameters = {"model", "cache_salt"}});
}

}  // namespace quire::server
