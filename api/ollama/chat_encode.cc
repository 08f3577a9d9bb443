#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/timestamp.h"
#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/ollama/chat.h"

namespace quire::api::ollama {
namespace {

// Calls are numbered through the whole answer: `calls_before` of them went out before.
Json EncodeCalls(const std::vector<ToolCall>& calls, size_t calls_before) {
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    Json function = {
        {"index", calls_before + list.size()}, {"name", call.name}, {"arguments", ArgumentsOf(call)}};
    Json entry = {{"id", call.id}, {"function", std::move(function)}};
    list.push_back(std::move(entry));
  }
  return list;
}

Json Head(Endpoint endpoint, std::string_view model, const TextDelta& delta, size_t calls_before, bool done,
          const EventContext& context) {
  Json reply = {{"model", model}, {"created_at", FormatTimestamp(context.now)}};
  if (endpoint == Endpoint::kChat) {
    Json message = {{"role", "assistant"}, {"content", delta.text}};
    if (!delta.thinking.empty()) message["thinking"] = delta.thinking;
    if (!delta.tool_calls.empty()) message["tool_calls"] = EncodeCalls(delta.tool_calls, calls_before);
    reply["message"] = std::move(message);
  } else {
    reply["response"] = delta.text;
    if (!delta.thinking.empty()) reply["thinking"] = delta.thinking;
  }
  reply["done"] = done;
  return reply;
}

// Clients divide by durations and take zero for "not measured".
int64_t Positive(int64_t ns) { return std::max<int64_t>(ns, 1); }

void AddMetrics(Json& reply, const Finished& finished, const EventContext& context) {
  const Usage& usage = finished.usage;
  const int64_t output_ns = Positive(usage.output_ns);
  reply["total_duration"] = std::max(Positive(context.total.count()), output_ns);
  reply["load_duration"] = Positive(context.load.count());
  reply["prompt_eval_count"] = usage.prompt_tokens;
  reply["prompt_eval_cached_count"] = usage.cached_tokens;
  reply["prompt_eval_duration"] = Positive(usage.prompt_ns);
  reply["eval_count"] = usage.output_tokens;
  reply["eval_duration"] = output_ns;
  if (usage.draft.rounds > 0) {
    reply["draft_count"] = usage.draft.drafted;
    reply["draft_accepted_count"] = usage.draft.accepted();
    reply["draft_accepted_by_position"] = usage.draft.accepted_by_position;
  }
  if (finished.prompt_dropped > 0) {
    reply["truncated"] = true;
    reply["prompt_dropped_count"] = finished.prompt_dropped;
  }
}

std::string Line(const Json& object) { return DumpJson(object) + "\n"; }

}  // namespace

std::string ChatEncoder::OnReady(const PromptReady& ready, const EventContext& context) {
  if (streams()) SetKeepAlive(Line(Head(endpoint_, model_, {}, 0, /*done=*/false, context)));
  if (!return_progress_) return {};
  clock_.OnReady(ready, context.total);
  return OnProgress({ready.cached_tokens}, context);
}

std::string ChatEncoder::OnProgress(const PrefillProgress& progress, const EventContext& context) {
  if (!return_progress_) return {};
  Json reply = Head(endpoint_, model_, {}, 0, /*done=*/false, context);
  reply["prompt_progress"] = clock_.Progress(progress.computed_tokens, context.total);
  return Line(reply);
}

std::string ChatEncoder::OnDelta(const TextDelta& delta, const EventContext& context) {
  if (!streams()) {
    Append(answer_, delta);
    return {};
  }
  if (IsSilent(delta)) return {};
  Json reply = Head(endpoint_, model_, delta, calls_sent_, /*done=*/false, context);
  calls_sent_ += delta.tool_calls.size();
  if (!delta.logprobs.empty()) reply["logprobs"] = EncodeLogprobs(delta.logprobs);
  return Line(reply);
}

std::string ChatEncoder::OnFinished(const Finished& finished, const EventContext& context) {
  Json reply = Head(endpoint_, model_, answer_, 0, /*done=*/true, context);
  reply["done_reason"] = Name(finished.reason);
  if (endpoint_ == Endpoint::kGenerate && !finished.context.empty()) reply["context"] = finished.context;
  AddMetrics(reply, finished, context);
  if (!answer_.logprobs.empty()) reply["logprobs"] = EncodeLogprobs(answer_.logprobs);
  return streams() ? Line(reply) : DumpJson(reply);
}

std::string ChatEncoder::OnFailed(const Error& error) { return StreamError(error); }

std::string LoadReply(Endpoint endpoint, std::string_view model, bool unload, const EventContext& context) {
  Json reply = Head(endpoint, model, {}, 0, /*done=*/true, context);
  reply["done_reason"] = unload ? "unload" : "load";
  return DumpJson(reply);
}

std::string ErrorBody(const Error& error) {
  const Json body = {{"error", error.message}};
  return DumpJson(body);
}

std::string StreamError(const Error& error) { return ErrorBody(error) + "\n"; }

}  // namespace quire::api::ollama
