#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/encode_parts.h"
#include "api/json/read.h"
#include "api/json/timings.h"
#include "api/openai/chat.h"
#include "api/openai/choices.h"
#include "api/openai/parts.h"

namespace quire::api::openai {
namespace {

constexpr std::string_view kFingerprint = "fp_quire_" QUIRE_VERSION;

Json EncodeUsage(const UsageOfChoices& usage) {
  Json details = Json::object();
  details["cached_tokens"] = usage.cached_tokens;
  Json encoded = {{"prompt_tokens", usage.prompt_tokens},
                  {"completion_tokens", usage.output_tokens},
                  {"total_tokens", usage.prompt_tokens + usage.output_tokens},
                  {"prompt_tokens_details", std::move(details)}};
  Json output = Json::object();
  if (usage.reasoning_tokens > 0) output["reasoning_tokens"] = usage.reasoning_tokens;
  if (usage.drafted_tokens > 0) {
    output["accepted_prediction_tokens"] = usage.accepted_tokens;
    output["rejected_prediction_tokens"] = usage.drafted_tokens - usage.accepted_tokens;
  }
  if (!output.empty()) encoded["completion_tokens_details"] = std::move(output);
  return encoded;
}

}  // namespace

void UsageOfChoices::Add(const Usage& usage, bool first_of_prompt) {
  output_tokens += usage.output_tokens;
  reasoning_tokens += usage.reasoning_tokens;
  drafted_tokens += usage.draft.drafted;
  accepted_tokens += usage.draft.accepted();
  if (!first_of_prompt) return;
  prompt_tokens += usage.prompt_tokens;
  cached_tokens += usage.cached_tokens;
}

ChoicesEncoder::ChoicesEncoder(ReplyHead head, std::string_view chunk_object, std::string_view body_object)
    : ReplyEncoder(head.stream, kEventStream, kWaiting),
      head_(std::move(head)),
      chunk_object_(chunk_object),
      body_object_(body_object),
      choices_(head_.choices) {
  for (size_t i = 0; i < choices_.size(); ++i) choices_[i].index = i;
}

// The text that comes before an answer.
size_t ChoicesEncoder::RepeatedBytes(const Event& event, size_t choice) const {
  if (!std::holds_alternative<TextDelta>(event) && !std::holds_alternative<Finished>(event)) return 0;
  if (streams()) return choices_.at(choice).echo_sent ? 0 : choices_.at(choice).echo.size();
  size_t bytes = 0;
  for (const Choice& one : choices_) bytes += one.echo.size();
  return bytes;
}

std::string ChoicesEncoder::OnReady(const PromptReady& ready, const EventContext& context) {
  UsageOfChoices& usage = choices_.at(context.choice).usage;
  usage.prompt_tokens = ready.prompt_tokens;
  usage.cached_tokens = ready.cached_tokens;
  choices_[context.choice].clock.OnReady(ready, context.total);
  return OnProgress({ready.cached_tokens}, context);
}

std::string ChoicesEncoder::OnProgress(const PrefillProgress& progress, const EventContext& context) {
  if (!head_.return_progress || !streams()) return {};
  const Choice& choice = choices_.at(context.choice);
  Json chunk = Envelope(chunk_object_);
  chunk["choices"] = Json::array({EncodeNothing(choice)});
  chunk["prompt_progress"] = choice.clock.Progress(progress.computed_tokens, context.total);
  return ServerSentEvent(chunk);
}

std::string ChoicesEncoder::OnDelta(const TextDelta& all, const EventContext& context) {
  Choice& choice = choices_.at(context.choice);
  choice.usage.output_tokens += all.tokens;
  choice.clock.OnDelta(all, context.total);
  TextDelta shown;
  if (head_.hide_thinking) {
    shown = all;
    shown.thinking.clear();
  }
  const TextDelta& delta = head_.hide_thinking ? shown : all;
  if (streams()) return EncodeDelta(choice, delta, head_.chunk_per_token && delta.tokens > 0);
  Append(choice.answer, delta);
  return {};
}

std::string ChoicesEncoder::OnFinished(const Finished& finished, const EventContext& context) {
  Choice& choice = choices_.at(context.choice);
  choice.finished = finished.reason;
  choice.usage = {};
  choice.usage.Add(finished.usage, true);
  usage_.Add(finished.usage, choice.index % head_.choices_per_prompt == 0);
  api::Add(times_, finished.usage);
  const bool all = std::ranges::all_of(choices_, [](const Choice& one) { return one.finished.has_value(); });
  if (!streams()) return all ? EncodeBody() : std::string();
  with_times_ = head_.timings && all && !head_.include_usage;
  std::string out = EncodeEnd(choice);
  if (!all) return out;
  if (head_.include_usage) {
    Json chunk = Envelope(chunk_object_);
    chunk["choices"] = Json::array();
    chunk["usage"] = EncodeUsage(usage_);
    if (head_.timings) chunk["timings"] = EncodeTimings(times_);
    out += ServerSentEvent(chunk);
  }
  return out + "data: [DONE]\n\n";
}

std::string ChoicesEncoder::OnFailed(const Error& error) { return StreamError(error); }

std::string ChoicesEncoder::Chunk(Json encoded, const Choice* counted) const {
  Json chunk = Envelope(chunk_object_);
  chunk["choices"] = Json::array({std::move(encoded)});
  if (head_.chunk_per_token && counted != nullptr) chunk["usage"] = EncodeUsage(counted->usage);
  if (with_times_) {
    chunk["timings"] = EncodeTimings(times_);
  } else if (head_.timings_per_token && counted != nullptr) {
    chunk["timings"] = counted->clock.Timings();
  }
  return ServerSentEvent(chunk);
}

std::string ChoicesEncoder::EncodeBody() {
  Json list = Json::array();
  for (Choice& choice : choices_) list.push_back(EncodeWhole(choice));
  Json body = Envelope(body_object_);
  body["choices"] = std::move(list);
  body["usage"] = EncodeUsage(usage_);
  if (head_.timings) body["timings"] = EncodeTimings(times_);
  AddToBody(body);
  return DumpJson(body);
}

Json ChoicesEncoder::Envelope(std::string_view object) const {
  return {{"id", head_.id},
          {"object", object},
          {"created", Seconds(head_.created)},
          {"model", head_.model},
          {"system_fingerprint", kFingerprint}};
}

}  // namespace quire::api::openai
