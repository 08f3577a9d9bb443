#include "server/routes/reply.h"

#include <memory>
#include <utility>
#include <variant>

#include "server/routes/error_response.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

void RecordEvent(RequestLog& log, const api::Event& event, Clock::time_point submitted) {
  const auto now = Clock::now();
  if (const auto* ready = std::get_if<api::PromptReady>(&event)) {
    log.queued = now - submitted;
    log.prompt_tokens = ready->prompt_tokens;
    log.cached_tokens = ready->cached_tokens;
    log.miss = ready->miss;
  } else if (const auto* delta = std::get_if<api::TextDelta>(&event)) {
    if (!log.first_token) log.first_token = now - log.start;
    log.gaps.Record(now, delta->tokens);
  } else if (const auto* finished = std::get_if<api::Finished>(&event)) {
    log.prompt_tokens = finished->usage.prompt_tokens;
    log.cached_tokens = finished->usage.cached_tokens;
    log.output_tokens = finished->usage.output_tokens;
    log.prompt_compute = std::chrono::nanoseconds(finished->usage.prompt_ns);
    log.output_compute = std::chrono::nanoseconds(finished->usage.output_ns);
    log.draft = finished->usage.draft;
    log.finish = finished->reason == api::FinishReason::kStop ? "stop" : "length";
  }
}

bool IsLast(const api::Event& event) {
  return std::holds_alternative<api::Finished>(event) || std::holds_alternative<api::Failed>(event);
}

// With `header` the stream begins even without bytes. False once the client has disconnected.
Awaitable<bool> StreamPiece(Exchange& exchange, const Reply& reply, std::string bytes, bool header,
                            bool last) {
  if (!bytes.empty() || header) {
    const bool taken = co_await exchange.Stream(reply.stream_type(), std::move(bytes));
    if (!taken) co_return false;
  }
  if (!last) co_return true;
  const bool ended = co_await exchange.EndStream();
  co_return ended;
}

}  // namespace

ReplyTiming ReplyTimingOf(const RequestLog& log, std::chrono::nanoseconds load) {
  return {std::chrono::system_clock::now(), Clock::now() - log.start, load};
}

scheduler::ModelSpec SpecOf(const StoredModel& model) {
  return {model.digest, model.name.Display(), model.weights, model.TemplateInUse(), model.draft};
}

Awaitable<void> SendError(Exchange& exchange, const api::Error& error) {
  exchange.log().error = api::Name(error.code);
  HttpResponse response = ErrorResponse(exchange.request().path, error, exchange.id());
  co_await exchange.Send(std::move(response));
}

Awaitable<void> SendReply(Exchange& exchange, Backend& backend, GenerationJob job, Reply& reply) {
  RequestLog& log = exchange.log();
  const auto submitted = Clock::now();
  auto placed = co_await backend.Submit(std::move(job.spec), std::move(job.request), job.keep_alive);
  if (!placed) {
    co_await SendError(exchange, placed.error());
    co_return;
  }
  const std::unique_ptr<scheduler::TokenStream> stream = *std::move(placed);
  for (bool last = false; !last;) {
    const api::Event event = co_await stream->Next();
    last = IsLast(event);
    RecordEvent(log, event, submitted);
    log.runner_pid = stream->runner_pid();
    if (const auto* failed = std::get_if<api::Failed>(&event)) {
      if (!exchange.started()) {
        co_await SendError(exchange, failed->error);
        co_return;
      }
      log.error = api::Name(failed->error.code);
    }
    const ReplyTiming timing = ReplyTimingOf(log, stream->load_duration());
    std::string bytes = reply.OnEvent(event, timing);
    if (reply.streams()) {
      const bool begins = std::holds_alternative<api::PromptReady>(event);
      if (begins) exchange.KeepAlive(reply.stream_type(), reply.keep_alive());
      // A reader of events knows at once that its prompt was taken. NDJSON has no way to say that the wait
      // goes on; there an error that comes before the first token keeps its status.
      const bool header = begins && !reply.keep_alive().empty();
      const bool taken = co_await StreamPiece(exchange, reply, std::move(bytes), header, last);
      if (!taken) co_return;
    } else if (last) {
      HttpResponse response{.body = std::move(bytes)};
      co_await exchange.Send(std::move(response));
    }
  }
}

}  // namespace quire::server
