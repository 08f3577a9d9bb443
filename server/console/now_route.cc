#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/console/change_stream.h"
#include "server/console/console.h"
#include "server/console/shared_now.h"
#include "server/http/io_turns.h"
#include "server/http/party.h"
#include "server/routes/relay.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

// How long one reply waits for engines, which answer between two steps.
constexpr std::chrono::milliseconds kEnginesWait(1000);
// All streams of a viewer that look within this time show the same.
constexpr std::chrono::milliseconds kSharedTime(250);

class NowChanges : public ChangeSource {
 public:
  NowChanges(const NowSources& sources, SharedNow& shared, Viewer viewer)
      : sources_(sources), shared_(shared), viewer_(std::move(viewer)) {}

  Awaitable<std::optional<std::string>> Next() override {
    // Asked, not awaited: an answer that takes longer shows in the next event.
    if (sources_.inspect_engines) co_await sources_.inspect_engines(Clock::now());
    const uint64_t added = sources_.recent.added();
    const bool with_recent = added_ != added;
    auto body = shared_.BodyFor(viewer_, Clock::now(), with_recent);
    if (!with_recent && last_ && *body == *last_) co_return std::nullopt;
    added_ = added;
    last_ = with_recent ? nullptr : body;
    co_return *body;
  }

 private:
  const NowSources& sources_;
  SharedNow& shared_;
  const Viewer viewer_;
  std::shared_ptr<const std::string> last_;  // without the recent requests; null: with them
  std::optional<uint64_t> added_;            // recent requests that the client knows
};

// What the route's requests share.
struct NowRoute {
  NowRoute(const NowSources& from) : sources(from), shared(from, kSharedTime) {}

  const NowSources& sources;
  SharedNow shared;
  fair::Quota streams{kStreamLimits};
  const std::shared_ptr<IoTurns> turns = std::make_shared<IoTurns>(IoTurns::kText);
};

Awaitable<void> Now(Exchange& exchange, NowRoute& route) {
  const NowSources& sources = route.sources;
  const HttpRequest& request = exchange.request();
  if (request.Accepts("accept", "text/event-stream")) {
    NowChanges changes(sources, route.shared, ViewerOf(request));
    co_await StreamChanges(exchange, changes, sources.draining, route.streams);
    co_return;
  }
  const Viewer viewer = ViewerOf(request);
  if (sources.inspect_engines) co_await sources.inspect_engines(Clock::now() + kEnginesWait);
  HttpResponse response{.headers = {{"Cache-Control", "no-store"}}};
  {
    const auto turn = co_await route.turns->Wait(PartyOf(exchange));
    if (!turn) co_return;
    response.body = EncodeNow(sources, viewer, Clock::now());
  }
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddNowRoutes(Router& router, const NowSources& sources) {
  constexpr uint64_t kBodyBytesMax = 1024;  // nobody needs one
  const auto route = std::make_shared<NowRoute>(sources);
  // Not cancel_on_disconnect: a page that looks takes none of its key's concurrent requests.
  router.Add({.method = "GET",
              .path = "/quire/now",
              .handler = [route](Exchange& exchange) { return Now(exchange, *route); },
              .body_bytes_max = kBodyBytesMax},
             {"console",
              "Loaded models, requests in progress and those that ended last; for Accept: text/event-stream "
              "one event at each change",
              /*body=*/{}, kJsonOrEvents});
}

}  // namespace quire::server
