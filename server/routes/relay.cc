#include "server/routes/relay.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <deque>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "api/base/request_memory.h"
#include "scheduler/async_event.h"
#include "server/routes/blocking.h"
#include "server/routes/error_response.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using namespace boost::asio::experimental::awaitable_operators;
using Clock = std::chrono::steady_clock;

// What is more bytes than about this is encoded on the pool: it would hold other clients up.
constexpr size_t kLargeReplyBytes = size_t{32} << 10;
constexpr size_t kIdBytes = 8;           // of a token id as text
constexpr size_t kCandidateBytes = 128;  // of a token with its probability
constexpr size_t kBytesOfByte = 8;       // of a byte of a token, as text and as a number
constexpr size_t kCallBytes = 128;       // of a call, beside its texts

struct ChoiceEvent {
  size_t choice = 0;
  api::Event event;
  std::chrono::nanoseconds load{};
  int runner_pid = 0;

  bool failed() const { return std::holds_alternative<api::Failed>(event); }
  bool last() const { return failed() || std::holds_alternative<api::Finished>(event); }
};

// The generation of one choice. Destroying it ends its work.
class Generation {
 public:
  Generation(scheduler::Backend& backend, const GenerationJob& job, size_t choice, api::Request request)
      : backend_(backend), job_(job), choice_(choice), request_(std::move(request)) {}

  // The first call submits it. REQUIRES: the last event is not out.
  Awaitable<ChoiceEvent> Next() {
    if (stream_ == nullptr) {
      auto submitted = co_await backend_.Submit(job_.spec, std::move(request_), job_.keep_alive);
      if (!submitted) co_return ChoiceEvent{choice_, api::Failed{std::move(submitted.error())}};
      stream_ = *std::move(submitted);
    }
    api::Event event = co_await stream_->Next();
    co_return ChoiceEvent{choice_, std::move(event), stream_->load_duration(), stream_->runner_pid()};
  }

 private:
  scheduler::Backend& backend_;
  const GenerationJob& job_;
  size_t choice_;
  api::Request request_;
  std::unique_ptr<scheduler::TokenStream> stream_;
};

// Runs several generations concurrently. Each has at most one event that the client has not consumed, so a
// slow reader delays them all. I/O thread only; lives in the frame of RelayReply().
class ConcurrentGenerations {
 public:
  ConcurrentGenerations(std::deque<Generation> generations, const asio::any_io_executor& executor)
      : generations_(std::move(generations)), event_added_(executor), event_consumed_(executor) {}

  // Runs them all; ends only by cancellation.
  Awaitable<void> RunAll() {
    try {
      co_await RunFrom(0);
    } catch (...) {
      Fail(std::current_exception());
    }
    for (bool waited = true; waited;) waited = co_await event_consumed_.Wait();
  }

  // Throws what one of them threw, which ends them all.
  Awaitable<ChoiceEvent> Next() {
    while (events_.empty() && !failure_) {
      const bool waited = co_await event_added_.Wait();
      if (!waited) break;
    }
    if (failure_) std::rethrow_exception(failure_);
    if (events_.empty()) throw boost::system::system_error(asio::error::operation_aborted);
    ChoiceEvent entry = std::move(events_.front());
    events_.pop_front();
    event_consumed_.Notify();
    co_return entry;
  }

 private:
  Awaitable<void> RunFrom(size_t first) {
    if (first + 1 == generations_.size()) {
      co_await Run(first);
    } else {
      co_await (Run(first) && RunFrom(first + 1));
    }
  }

  // Never throws: others that are canceled for it would hide what it was.
  Awaitable<void> Run(size_t choice) {
    try {
      co_await Serve(choice);
    } catch (...) {
      Fail(std::current_exception());
    }
  }

  Awaitable<void> Serve(size_t choice) {
    Generation generation = std::move(generations_[choice]);
    for (bool last = false; !last;) {
      ChoiceEvent entry = co_await generation.Next();
      last = entry.last();
      Push(std::move(entry));
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

  void Fail(std::exception_ptr thrown) noexcept {
    if (!failure_) failure_ = std::move(thrown);
    event_added_.Notify();
  }

  bool HasPending(size_t choice) const {
    return std::ranges::any_of(events_,
                               [choice](const ChoiceEvent& entry) { return entry.choice == choice; });
  }

  std::deque<Generation> generations_;
  std::deque<ChoiceEvent> events_;
  std::exception_ptr failure_;  // the first one
  scheduler::AsyncEvent event_added_;
  scheduler::AsyncEvent event_consumed_;
};

// Adds one event to the request log; `only`: of the only choice.
void RecordEvent(RequestLog& log, const ChoiceEvent& entry, bool only, Clock::time_point submitted) {
  const auto now = Clock::now();
  log.runner_pid = entry.runner_pid;
  if (const auto* ready = std::get_if<api::PromptReady>(&entry.event)) {
    log.queued = now - submitted;
    log.prompt_tokens = log.prompt_tokens.value_or(0) + ready->prompt_tokens;
    log.cached_tokens = log.cached_tokens.value_or(0) + ready->cached_tokens;
    log.miss = ready->miss;
    log.divergence = ready->divergence;
    log.prompt_build = std::chrono::nanoseconds(ready->build_ns);
    log.prefix_restore = std::chrono::nanoseconds(ready->restore_ns);
  } else if (const auto* delta = std::get_if<api::TextDelta>(&entry.event)) {
    if (!log.first_token && delta->prompt.empty()) log.first_token = now - log.start;
    log.streamed_tokens += delta->tokens;
    if (only) log.gaps.Record(now, delta->tokens);
  } else if (const auto* finished = std::get_if<api::Finished>(&entry.event)) {
    const api::Usage& usage = finished->usage;
    if (only) {
      log.prompt_tokens = usage.prompt_tokens;
      log.cached_tokens = usage.cached_tokens;
    }
    log.output_tokens = log.output_tokens.value_or(0) + usage.output_tokens;
    log.prompt_compute += std::chrono::nanoseconds(usage.prompt_ns);
    log.output_compute += std::chrono::nanoseconds(usage.output_ns);
    AddDrafts(log.draft, usage.draft);
    log.finish = finished->reason == api::FinishReason::kStop ? "stop" : "length";
    if (finished->in_thinking) log.finish_in = "thinking";
  }
}

size_t ReplyBytes(const api::TokenCandidate& candidate) {
  constexpr size_t kUsualBytes = 8;  // that kCandidateBytes are for
  return kCandidateBytes + (std::max(candidate.bytes.size(), kUsualBytes) - kUsualBytes) * kBytesOfByte;
}

size_t ReplyBytes(const std::vector<api::TokenLogprob>& tokens) {
  size_t bytes = 0;
  for (const api::TokenLogprob& token : tokens) {
    bytes += ReplyBytes(token.chosen);
    for (const api::TokenCandidate& candidate : token.top) bytes += ReplyBytes(candidate);
  }
  return bytes;
}

// About what an event adds to a whole reply: everything of it that a runner chooses the size of.
size_t ReplyBytes(const api::Event& event) {
  if (const auto* delta = std::get_if<api::TextDelta>(&event)) {
    const size_t candidates = ReplyBytes(delta->logprobs) + ReplyBytes(delta->prompt);
    size_t calls = 0;
    for (const api::ToolCall& call : delta->tool_calls) {
      calls += kCallBytes + call.id.size() + call.name.size() + call.arguments_json.size();
    }
    return delta->text.size() + delta->thinking.size() + calls + candidates +
           delta->token_ids.size() * kIdBytes;
  }
  if (const auto* finished = std::get_if<api::Finished>(&event)) return finished->context.size() * kIdBytes;
  return 0;
}

// The memory of an answer that is collected: of one that is not streamed, or of a stream whose last chunk
// repeats it.
class CollectedAnswer {
 public:
  CollectedAnswer(Exchange& exchange, const api::ReplyEncoder& reply) : exchange_(exchange), reply_(reply) {}

  // Why the answer may not have this event.
  std::optional<api::Error> Add(const ChoiceEvent& entry) {
    constexpr size_t kStep = size_t{16} << 10;
    bytes_ += ReplyBytes(entry.event);
    if (bytes_ <= counted_) return std::nullopt;
    counted_ = (bytes_ / kStep + 1) * kStep;
    const size_t collected =
        reply_.streams() ? reply_.RepeatedBytes(api::Finished{}, entry.choice) : counted_;
    return ReserveAnswer(exchange_, collected);
  }
  size_t bytes() const { return bytes_; }  // of all events so far

 private:
  Exchange& exchange_;
  const api::ReplyEncoder& reply_;
  size_t bytes_ = 0;
  size_t counted_ = 0;
};

// A large chunk is sent in parts, between which other clients have their turn: it is copied for each write.
Awaitable<bool> StreamParts(Exchange& exchange, std::string_view content_type, std::string bytes) {
  size_t begin = 0;
  for (; bytes.size() - begin > kLargeReplyBytes; begin += kLargeReplyBytes) {
    std::string part = bytes.substr(begin, kLargeReplyBytes);
    const bool sent = co_await exchange.Stream(content_type, std::move(part));
    if (!sent) co_return false;
  }
  if (begin > 0) bytes.erase(0, begin);
  const bool sent = co_await exchange.Stream(content_type, std::move(bytes));
  co_return sent;
}

// About how many bytes are encoded with the event. A reply that is not streamed is encoded with the `last`
// one: `reply_bytes` are those of all events so far.
size_t EncodedBytes(const ChoiceEvent& entry, bool last, size_t reply_bytes, const api::ReplyEncoder& reply) {
  if (!reply.streams() && !last) return 0;
  return (reply.streams() ? ReplyBytes(entry.event) : reply_bytes) +
         reply.RepeatedBytes(entry.event, entry.choice);
}

// A message may quote what the client sent, up to a whole body: a name, a key of an object.
std::string Shortened(std::string_view text) {
  constexpr size_t kShownMax = size_t{16} << 10;
  if (text.size() <= kShownMax) return std::string(text);
  return std::string(text.substr(0, kShownMax)) + "...";
}

// What the reply says of the event. The `last` one of a reply that is sent whole frees what that was made of,
// which may be as large, where it was made: the job has no encoder any more.
Awaitable<std::string> EncodeEvent(Exchange& exchange, WorkKind& cpu, ChoiceEvent& entry, bool last,
                                   size_t reply_bytes, GenerationJob& job) {
  const api::EventContext context = ContextOf(exchange.log(), entry.load, entry.choice);
  const bool large = EncodedBytes(entry, last, reply_bytes, *job.reply) > kLargeReplyBytes;
  const bool whole = last && !job.reply->streams();
  auto work = [&entry, &job, &context, whole] {
    std::string bytes = job.reply->OnEvent(entry.event, context);
    if (whole) {
      job.reply.reset();
      entry.event = api::PromptReady{};
    }
    return bytes;
  };
  if (!large) co_return work();
  auto bytes = co_await RunFor(exchange, cpu, std::move(work));
  co_return bytes;
}

// For a job whose reply has about `reply_bytes` so far, this event's included. Sends the event's bytes.
// False: nothing more can be sent.
Awaitable<bool> SendEvent(Exchange& exchange, WorkKind& cpu, ChoiceEvent& entry, bool last,
                          size_t reply_bytes, GenerationJob& job) {
  RequestLog& log = exchange.log();
  if (auto* failed = std::get_if<api::Failed>(&entry.event)) {
    if (!exchange.started()) {
      co_await SendError(exchange, failed->error);
      co_return false;
    }
    log.error = api::Name(failed->error.code);
    failed->error.message = exchange.ClientText(failed->error.message);
  }
  const bool streams = job.reply->streams();
  std::string bytes = co_await EncodeEvent(exchange, cpu, entry, last, reply_bytes, job);
  if (!streams) {
    if (!last) co_return true;
    HttpResponse response{.body = std::move(bytes)};
    co_await exchange.Send(std::move(response));
    co_return false;
  }
  const api::ReplyEncoder& reply = *job.reply;
  const bool ready = std::holds_alternative<api::PromptReady>(entry.event);
  if (ready) exchange.KeepAlive(reply.content_type(), reply.keep_alive());
  // A reader of server-sent events knows at once that its prompt was accepted. An NDJSON stream says so with
  // its first keep-alive; until then an error that comes before the first token keeps its status.
  const bool header = ready && reply.content_type() == api::kEventStream && !exchange.started();
  if (bytes.empty() && !header) co_return true;
  const bool sent = co_await StreamParts(exchange, reply.content_type(), std::move(bytes));
  co_return sent;
}

// Sends events until all choices have ended, one has failed, or the client has disconnected.
template <class Source>
Awaitable<void> Relay(Exchange& exchange, WorkKind& cpu, Source& source, size_t choices, GenerationJob& job) {
  const auto submitted = Clock::now();
  CollectedAnswer answer(exchange, *job.reply);
  for (size_t left = choices; left > 0;) {
    ChoiceEvent entry = co_await source.Next();
    RecordEvent(exchange.log(), entry, choices == 1, submitted);
    if (auto error = answer.Add(entry)) entry.event = api::Failed{*std::move(error)};
    left = entry.failed() ? 0 : left - (entry.last() ? 1 : 0);
    const auto* finished = std::get_if<api::Finished>(&entry.event);
    if (finished != nullptr && job.on_finished) job.on_finished(*finished);
    if (left == 0) exchange.EndWork();
    const bool sent = co_await SendEvent(exchange, cpu, entry, left == 0, answer.bytes(), job);
    if (!sent) co_return;
  }
  co_await exchange.EndStream();
}

std::optional<api::Error> AsError(std::optional<ParseFailure> refusal) {
  if (!refusal) return std::nullopt;
  return api::Error{api::CodeOf(refusal->status), std::move(refusal->reason)};
}

// Never throws, so that its end ends the generations too.
Awaitable<std::exception_ptr> TryRelay(Exchange& exchange, WorkKind& cpu, ConcurrentGenerations& source,
                                       size_t choices, GenerationJob& job) {
  std::exception_ptr failure;
  try {
    co_await Relay(exchange, cpu, source, choices, job);
  } catch (...) {
    failure = std::current_exception();
  }
  co_return failure;
}

}  // namespace

api::EventContext ContextOf(const RequestLog& log, std::chrono::nanoseconds load, size_t choice) {
  return {choice, std::chrono::system_clock::now(), Clock::now() - log.start, load};
}

scheduler::ModelSpec SpecOf(const SharedModel& model) {
  scheduler::ModelSpec spec{.key = model->digest,
                            .name = model->name.Display(),
                            .path = model->weights,
                            .names = model->PromptNames(),
                            .draft_path = model->draft,
                            .projector_path = model->projector};
  if (!model->TemplateInUse().empty()) spec.go_template = {model, &model->go_template};
  return spec;
}

uint64_t MemoryBytes(const std::vector<api::Request>& choices) {
  uint64_t bytes = 0;
  for (const api::Request& request : choices) bytes += api::MemoryBytes(request);
  return bytes;
}

std::optional<api::Error> ReserveRequest(Exchange& exchange, uint64_t bytes) {
  return AsError(exchange.ReserveRequest(bytes));
}

std::optional<api::Error> ReserveAnswer(Exchange& exchange, uint64_t bytes) {
  return AsError(exchange.ReserveAnswer(bytes));
}

std::string ShownText(Exchange& exchange, const std::string& message) {
  return exchange.ClientText(Shortened(message));
}

Awaitable<void> SendError(Exchange& exchange, const api::Error& error) {
  exchange.log().error = api::Name(error.code);
  api::Error shown{error.code, ShownText(exchange, error.message), Shortened(error.field), error.tokens,
                   error.tokens_max};
  HttpResponse response = ErrorResponse(exchange.request().path, shown, exchange.id());
  co_await exchange.Send(std::move(response));
}

Awaitable<void> RelayReply(Exchange& exchange, scheduler::Backend& backend, WorkKind& cpu,
                           GenerationJob job) {
  const size_t count = job.choices.size();
  std::deque<Generation> generations;
  for (size_t i = 0; i < count; ++i) generations.emplace_back(backend, job, i, std::move(job.choices[i]));
  if (count == 1) {
    co_await Relay(exchange, cpu, generations.front(), count, job);
    co_return;
  }
  const auto executor = co_await asio::this_coro::executor;
  ConcurrentGenerations all(std::move(generations), executor);
  auto ended = co_await (TryRelay(exchange, cpu, all, count, job) || all.RunAll());
  if (ended.index() != 0) throw boost::system::system_error(asio::error::operation_aborted);
  if (std::get<0>(ended)) std::rethrow_exception(std::get<0>(ended));
}

}  // namespace quire::server
