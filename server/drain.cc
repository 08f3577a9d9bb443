#include "server/drain.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>
#include <utility>

#include "server/exit_deadline.h"
#include "server/journal.h"
#include "server/notify.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

// After the drain: for answers that are still being written, then for their coroutines to end.
constexpr std::chrono::seconds kLastWrites(5);
// How long clients of an inherited socket may still begin requests after SIGTERM: those that come later wait
// in the socket for the next daemon.
constexpr std::chrono::seconds kLastRequests(1);
constexpr std::chrono::milliseconds kLastRequestsLook(20);
constexpr std::chrono::seconds kStopBeat(5);  // between two words to the service manager while requests end

const char* SignalName(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace

Drain::Drain(asio::io_context& io, HttpServer& server, scheduler::Dispatcher& dispatcher,
             const std::chrono::nanoseconds& timeout, std::function<void()> stop_work)
    : executor_(io.get_executor()),
      server_(server),
      dispatcher_(dispatcher),
      drain_timeout_(timeout),
      stop_work_(std::move(stop_work)),
      signals_(io, SIGINT, SIGTERM) {}

Awaitable<void> Drain::AtSignal(bool activated) {
  const auto [ec, signal] = co_await signals_.async_wait(kTuple);
  spdlog::info("draining signal={} connections={}", SignalName(signal), server_.sessions());
  NotifyStopping();
  server_.StopAccepting();
  asio::co_spawn(executor_, EndAtSecondSignal(), kEndsProcess);
  asio::co_spawn(executor_, ExtendStopTimeout(), kEndsProcess);
  if (activated) co_await AnswerLastRequests();

  const auto deadline = Clock::now() + drain_timeout_;
  co_await FinishRequests(deadline);
  co_await dispatcher_.Drain(deadline);
  server_.CloseIdle();
  const bool ended = co_await server_.WaitForSessions(std::min(deadline, Clock::now() + kLastWrites));
  if (!ended) {
    server_.AbortAll();
    stop_work_();
    co_await server_.WaitForSessions(Clock::now() + kLastWrites);
  }
  spdlog::info("stopped connections_left={}", server_.sessions());
}

void Drain::ExitAtSignals() {
  boost::system::error_code ignored;
  signals_.clear(ignored);
  server::ExitAtSignals();
}

// Nothing is waited for: the kernel closes the sockets, and runners die with their parent.
Awaitable<void> Drain::EndAtSecondSignal() {
  const auto [ec, signal] = co_await signals_.async_wait(kTuple);
  if (ec) co_return;
  spdlog::warn("stopping immediately signal={}", SignalName(signal));
  DrainLog();
  std::_Exit(0);
}

// Accepted connections get one more reply with Connection: close; their clients reconnect
// through the service manager's socket, and none of them sees a refusal.
Awaitable<void> Drain::AnswerLastRequests() {
  asio::steady_timer timer(executor_);
  const auto until = Clock::now() + kLastRequests;
  while (server_.idle_sessions() > 0 && Clock::now() < until) {
    timer.expires_after(kLastRequestsLook);
    co_await timer.async_wait(kTuple);
  }
}

// A request that was read from a client is answered, even if it has not reached the scheduler yet.
Awaitable<void> Drain::FinishRequests(Clock::time_point deadline) {
  asio::steady_timer timer(executor_);
  while (server_.sessions() > server_.idle_sessions() && Clock::now() < deadline) {
    timer.expires_after(kLastRequestsLook);
    co_await timer.async_wait(kTuple);
  }
}

// Keeps the service manager patient as long as the drain may last.
Awaitable<void> Drain::ExtendStopTimeout() {
  asio::steady_timer timer(executor_);
  for (;;) {
    NotifyExtendTimeout(3 * kStopBeat);
    NotifyStatus(fmt::format("Draining: {} connections", server_.sessions()));
    timer.expires_after(kStopBeat);
    co_await timer.async_wait(kTuple);
  }
}

}  // namespace quire::server
