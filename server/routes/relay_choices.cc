#include "server/routes/relay_choices.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "scheduler/signal.h"
#include "server/routes/error_response.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using namespace boost::asio::experimental::awaitable_operators;
using Clock = std::chrono::steady_clock;

// The generations side by side. Each has at most one event that the client has not taken, so that a slow
// reader holds them all up. I/O thread only; lives in the frame of RelayChoices().
class Choices {
 public:
  struct Came {
    size_t choice = 0;
    api::Event event;
    std::chrono::nanoseconds load{};
    int runner_pid = 0;
  };

  Choices(Backend& backend, std::vector<Job> jobs, const asio::any_io_executor& executor)
      : backend_(backend), jobs_(std::move(jobs)), came_(executor), taken_(executor) {}

  // Runs them all, from `first` on; ends only by cancellation.
  Awaitable<void> RunFrom(size_t first) {
    if (first + 1 == jobs_.size()) {
      co_await Run(first);
    } else {
      co_await (Run(first) && RunFrom(first + 1));
    }
  }

  Awaitable<Came> Next() {
    while (events_.empty()) {
      const bool waited = co_await came_.Wait();
      if (!waited) break;
    }
    if (events_.empty()) throw boost::system::system_error(asio::error::operation_aborted);
    Came came = std::move(events_.front());
    events_.pop_front();
    taken_.Notify();
    co_return came;
  }

 private:
  // Ends only by cancellation: the end of one side would end the others.
  Awaitable<void> Run(size_t choice) {
    try {
      co_await Serve(choice);
    } catch (const std::exception& error) {
      Tell({choice, api::Failed{{api::ErrorCode::kInternal, error.what()}}});
    }
    for (bool waited = true; waited;) waited = co_await taken_.Wait();
  }

  Awaitable<void> Serve(size_t choice) {
    Job job = std::move(jobs_[choice]);
    auto placed = co_await backend_.Submit(std::move(job.spec), std::move(job.request), job.keep_alive);
    if (!placed) {
      Tell({choice, api::Failed{placed.error()}});
      co_return;
    }
    const std::unique_ptr<scheduler::Generation> generation = *std::move(placed);
    for (bool last = false; !last;) {
      api::Event event = co_await generation->Next();
      last = std::holds_alternative<api::Finished>(event) || std::holds_alternative<api::Failed>(event);
      Tell({choice, std::move(event), generation->load_duration(), generation->runner_pid()});
      // What is told is taken before more comes.
      for (bool waiting = !last && Waits(choice); waiting; waiting = Waits(choice)) {
        const bool waited = co_await taken_.Wait();
        if (!waited) co_return;
      }
    }
  }

  void Tell(Came came) {
    events_.push_back(std::move(came));
    came_.Notify();
  }

  bool Waits(size_t choice) const {
    return std::ranges::any_of(events_, [choice](const Came& came) { return came.choice == choice; });
  }

  Backend& backend_;
  std::vector<Job> jobs_;
  std::deque<Came> events_;
  scheduler::Signal came_;
  scheduler::Signal taken_;
};

// Adds one choice's event to what the log says of the request.
void Note(RequestLog& log, const Choices::Came& came, Clock::time_point submitted) {
  const auto now = Clock::now();
  log.runner_pid = came.runner_pid;
  if (const auto* ready = std::get_if<api::PromptReady>(&came.event)) {
    log.queued = now - submitted;
    log.prompt_tokens = log.prompt_tokens.value_or(0) + ready->prompt_tokens;
    log.cached_tokens = log.cached_tokens.value_or(0) + ready->cached_tokens;
    log.miss = ready->miss;
  } else if (std::holds_alternative<api::TextDelta>(came.event)) {
    if (!log.first_token) log.first_token = now - log.start;
  } else if (const auto* finished = std::get_if<api::Finished>(&came.event)) {
    log.output_tokens = log.output_tokens.value_or(0) + finished->usage.output_tokens;
    log.prompt_compute += std::chrono::nanoseconds(finished->usage.prompt_ns);
    log.output_compute += std::chrono::nanoseconds(finished->usage.output_ns);
    AddDrafts(log.draft, finished->usage.draft);
    log.finish = finished->reason == api::FinishReason::kStop ? "stop" : "length";
  }
}

class OnlyChoice : public Reply {
 public:
  explicit OnlyChoice(ChoicesReply& reply) : reply_(reply) {}
  bool streams() const override { return reply_.streams(); }
  std::string_view stream_type() const override { return reply_.stream_type(); }
  std::string_view keep_alive() const override { return reply_.keep_alive(); }
  std::string OnEvent(const api::Event& event, const Moment& moment) override {
    return reply_.OnEvent(0, event, moment);
  }

 private:
  ChoicesReply& reply_;
};

// Writes what comes until all have ended, one has failed, or the client takes nothing more.
Awaitable<void> Deliver(Exchange& exchange, Choices& choices, size_t left, ChoicesReply& reply) {
  const auto submitted = Clock::now();
  RequestLog& log = exchange.log();
  while (left > 0) {
    const Choices::Came came = co_await choices.Next();
    Note(log, came, submitted);
    const auto* failed = std::get_if<api::Failed>(&came.event);
    if (failed != nullptr || std::holds_alternative<api::Finished>(came.event)) --left;
    if (failed != nullptr) {
      left = 0;
      if (!exchange.started()) {
        co_await SendError(exchange, failed->error);
        co_return;
      }
      log.error = Name(failed->error.code);
    }
    std::string bytes = reply.OnEvent(came.choice, came.event, MomentOf(log, came.load));
    if (!reply.streams()) {
      if (left > 0) continue;
      HttpResponse response{.body = std::move(bytes)};
      co_await exchange.Send(std::move(response));
      co_return;
    }
    const bool begins = std::holds_alternative<api::PromptReady>(came.event);
    if (begins) exchange.KeepAlive(reply.stream_type(), reply.keep_alive());
    if (!bytes.empty() || (begins && !exchange.started())) {
      const bool taken = co_await exchange.Stream(reply.stream_type(), std::move(bytes));
      if (!taken) co_return;
    }
  }
  co_await exchange.EndStream();
}

// Never throws, so that its end ends the generations too.
Awaitable<std::exception_ptr> TryDeliver(Exchange& exchange, Choices& choices, size_t left,
                                         ChoicesReply& reply) {
  std::exception_ptr failure;
  try {
    co_await Deliver(exchange, choices, left, reply);
  } catch (...) {
    failure = std::current_exception();
  }
  co_return failure;
}

}  // namespace

Awaitable<void> RelayChoices(Exchange& exchange, Backend& backend, std::vector<Job> jobs,
                             ChoicesReply& reply) {
  const size_t count = jobs.size();
  if (count == 1) {
    OnlyChoice only(reply);
    co_await Relay(exchange, backend, std::move(jobs.front()), only);
    co_return;
  }
  const auto executor = co_await asio::this_coro::executor;
  Choices choices(backend, std::move(jobs), executor);
  auto ended = co_await (TryDeliver(exchange, choices, count, reply) || choices.RunFrom(0));
  if (ended.index() != 0) throw boost::system::system_error(asio::error::operation_aborted);
  if (std::get<0>(ended)) std::rethrow_exception(std::get<0>(ended));
}

}  // namespace quire::server
