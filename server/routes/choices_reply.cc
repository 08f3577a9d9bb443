#include "server/routes/choices_reply.h"

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

#include "scheduler/async_event.h"
#include "server/routes/error_response.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using namespace boost::asio::experimental::awaitable_operators;
using Clock = std::chrono::steady_clock;

// Runs the generations concurrently. Each has at most one event that the client has not consumed, so a slow
// reader delays them all. I/O thread only; lives in the frame of SendChoices().
class Choices {
 public:
  struct ChoiceEvent {
    size_t choice = 0;
    api::Event event;
    std::chrono::nanoseconds load{};
    int runner_pid = 0;
  };

  Choices(Backend& backend, std::vector<GenerationJob> jobs, const asio::any_io_executor& executor)
      : backend_(backend), jobs_(std::move(jobs)), event_added_(executor), event_consumed_(executor) {}

  // Runs them all, from `first` on; ends only by cancellation.
  Awaitable<void> RunFrom(size_t first) {
    if (first + 1 == jobs_.size()) {
      co_await Run(first);
    } else {
      co_await (Run(first) && RunFrom(first + 1));
    }
  }

  Awaitable<ChoiceEvent> Next() {
    while (events_.empty()) {
      const bool waited = co_await event_added_.Wait();
      if (!waited) break;
    }
    if (events_.empty()) throw boost::system::system_error(asio::error::operation_aborted);
    ChoiceEvent entry = std::move(events_.front());
    events_.pop_front();
    event_consumed_.Notify();
    co_return entry;
  }

 private:
  // Ends only by cancellation: the end of one side would end the others.
  Awaitable<void> Run(size_t choice) {
    try {
      co_await Serve(choice);
    } catch (const std::exception& error) {
      Push({choice, api::Failed{{api::ErrorCode::kInternal, error.what()}}});
    }
    for (bool waited = true; waited;) waited = co_await event_consumed_.Wait();
  }

  Awaitable<void> Serve(size_t choice) {
    GenerationJob job = std::move(jobs_[choice]);
    auto placed = co_await backend_.Submit(std::move(job.spec), std::move(job.request), job.keep_alive);
    if (!placed) {
      Push({choice, api::Failed{placed.error()}});
      co_return;
    }
    const std::unique_ptr<scheduler::TokenStream> stream = *std::move(placed);
    for (bool last = false; !last;) {
      api::Event event = co_await stream->Next();
      last = std::holds_alternative<api::Finished>(event) || std::holds_alternative<api::Failed>(event);
      Push({choice, std::move(event), stream->load_duration(), stream->runner_pid()});
      // Wait until the event is consumed before reading the next.
      for (bool waiting = !last && HasPending(choice); waiting; waiting = HasPending(choice)) {
        const bool waited = co_await event_consumed_.Wait();
        if (!waited) co_return;
      }
    }
  }

  void Push(ChoiceEvent entry) {
    events_.push_back(std::move(entry));
    event_added_.Notify();
  }

  bool HasPending(size_t choice) const {
    return std::ranges::any_of(events_,
                               [choice](const ChoiceEvent& entry) { return entry.choice == choice; });
  }

  Backend& backend_;
  std::vector<GenerationJob> jobs_;
  std::deque<ChoiceEvent> events_;
  scheduler::AsyncEvent event_added_;
  scheduler::AsyncEvent event_consumed_;
};

// Adds one choice's event to the request log.
void RecordEvent(RequestLog& log, const Choices::ChoiceEvent& entry, Clock::time_point submitted) {
  const auto now = Clock::now();
  log.runner_pid = entry.runner_pid;
  if (const auto* ready = std::get_if<api::PromptReady>(&entry.event)) {
    log.queued = now - submitted;
    log.prompt_tokens = log.prompt_tokens.value_or(0) + ready->prompt_tokens;
    log.cached_tokens = log.cached_tokens.value_or(0) + ready->cached_tokens;
    log.miss = ready->miss;
  } else if (std::holds_alternative<api::TextDelta>(entry.event)) {
    if (!log.first_token) log.first_token = now - log.start;
  } else if (const auto* finished = std::get_if<api::Finished>(&entry.event)) {
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
  std::string OnEvent(const api::Event& event, const ReplyTiming& timing) override {
    return reply_.OnEvent(0, event, timing);
  }

 private:
  ChoicesReply& reply_;
};

// Writes events until all have ended, one has failed, or the client has disconnected.
Awaitable<void> Deliver(Exchange& exchange, Choices& choices, size_t left, ChoicesReply& reply) {
  const auto submitted = Clock::now();
  RequestLog& log = exchange.log();
  while (left > 0) {
    const Choices::ChoiceEvent entry = co_await choices.Next();
    RecordEvent(log, entry, submitted);
    const auto* failed = std::get_if<api::Failed>(&entry.event);
    if (failed != nullptr || std::holds_alternative<api::Finished>(entry.event)) --left;
    if (failed != nullptr) {
      left = 0;
      if (!exchange.started()) {
        co_await SendError(exchange, failed->error);
        co_return;
      }
      log.error = api::Name(failed->error.code);
    }
    std::string bytes = reply.OnEvent(entry.choice, entry.event, ReplyTimingOf(log, entry.load));
    if (!reply.streams()) {
      if (left > 0) continue;
      HttpResponse response{.body = std::move(bytes)};
      co_await exchange.Send(std::move(response));
      co_return;
    }
    const bool begins = std::holds_alternative<api::PromptReady>(entry.event);
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

Awaitable<void> SendChoices(Exchange& exchange, Backend& backend, std::vector<GenerationJob> jobs,
                            ChoicesReply& reply) {
  const size_t count = jobs.size();
  if (count == 1) {
    OnlyChoice only(reply);
    co_await SendReply(exchange, backend, std::move(jobs.front()), only);
    co_return;
  }
  const auto executor = co_await asio::this_coro::executor;
  Choices choices(backend, std::move(jobs), executor);
  auto ended = co_await (TryDeliver(exchange, choices, count, reply) || choices.RunFrom(0));
  if (ended.index() != 0) throw boost::system::system_error(asio::error::operation_aborted);
  if (std::get<0>(ended)) std::rethrow_exception(std::get<0>(ended));
}

}  // namespace quire::server
