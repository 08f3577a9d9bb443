#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "api/json/encode_parts.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/timings.h"
#include "api/llama_server/completion.h"
#include "api/openai/chat.h"
#include "api/openai/choices.h"
#include "api/openai/parts.h"

namespace quire::api::llama_server {
namespace {

std::string_view StopType(const Finished& finished) {
  if (finished.reason == FinishReason::kLength) return "limit";
  return finished.stop_string.empty() ? "eos" : "word";
}

Json EncodeCandidate(const TokenCandidate& token) {
  Json bytes = Json::array();
  for (const char byte : token.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"id", token.id},
          {"token", token.bytes},
          {"bytes", std::move(bytes)},
          {"logprob", JsonLogprob(token.logprob)}};
}

Json EncodeProbabilities(const std::vector<TokenLogprob>& logprobs) {
  Json list = Json::array();
  for (const TokenLogprob& token : logprobs) {
    Json entry = EncodeCandidate(token.chosen);
    Json top = Json::array();
    for (const TokenCandidate& candidate : token.top) top.push_back(EncodeCandidate(candidate));
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

template <class Ids>
Json EncodeIds(const Ids& ids) {
  Json list = Json::array();
  for (const TokenId id : ids) list.push_back(id);
  return list;
}

// The member that a path like "timings/prompt_n" leads to, or null.
const Json* MemberAt(const Json& object, std::string_view path) {
  const Json* at = &object;
  while (true) {
    const size_t slash = std::min(path.find('/'), path.size());
    const auto found = at->is_object() ? at->find(std::string(path.substr(0, slash))) : at->end();
    if (!at->is_object() || found == at->end()) return nullptr;
    at = &*found;
    if (slash == path.size()) return at;
    path.remove_prefix(slash + 1);
  }
}

// Members by their paths; those that there are not are left out.
Json Selected(Json object, const std::vector<std::string>& paths) {
  if (paths.empty()) return object;
  Json selected = Json::object();
  for (const std::string& path : paths) {
    if (const Json* member = MemberAt(object, path)) selected[path] = *member;
  }
  return selected;
}

}  // namespace

Json EncodeSettings(const GenerationParams& params) {
  Json out = Json::object();
  VisitOptions(
      [&out]<class T>(const OptionRow& row, const T& value) {
        if constexpr (!std::is_same_v<T, std::vector<LogitBias>>) out[std::string(row.name)] = value;
      },
      params);
  out["n_predict"] = out["max_tokens"] = params.num_predict;
  out["n_keep"] = params.num_keep;
  Json biases = Json::array();
  for (const LogitBias& bias : params.logit_bias) {
    Json entry = {{"token", bias.token}};
    entry["bias"] = bias.bias;
    biases.push_back(std::move(entry));
  }
  out["logit_bias"] = std::move(biases);
  for (const std::string_view name : {"num_ctx", "num_predict", "num_keep"}) out.erase(std::string(name));
  return out;
}

CompletionHead HeadOf(const CompletionRequest& request, const ModelDefaults& defaults) {
  CompletionHead head{
      .model = request.model,
      .stream = request.stream,
      .list = request.list || request.n > 1,
      .return_tokens = request.return_tokens,
      .slot = request.slot,
      .n_probs = request.n_probs,
      .texts = {},
      .response_fields = request.response_fields,
      .params = Resolve(Overlay(Overlay(DefaultOptions(), defaults.options), request.options)),
      .format = request.format,
      .return_progress = request.return_progress,
      .timings_per_token = request.timings_per_token};
  for (const std::string& text : request.texts) {
    head.texts.insert(head.texts.end(), static_cast<size_t>(request.n), text);
  }
  return head;
}

CompletionEncoder::CompletionEncoder(CompletionHead head)
    : ReplyEncoder(head.stream, kEventStream, openai::kWaiting),
      head_(std::move(head)),
      choices_(head_.texts.size()) {
  constexpr size_t kNumbersBytes = 2048;
  settings_bytes_ = kNumbersBytes + (head_.format ? head_.format->text.size() : 0);
  for (const std::string& text : head_.params.stop) settings_bytes_ += text.size();
}

size_t CompletionEncoder::RepeatedBytes(const Event& event, size_t choice) const {
  if (!std::holds_alternative<Finished>(event)) return 0;
  if (streams()) return head_.texts.at(choice).size() + settings_bytes_;
  size_t bytes = 0;
  for (const std::string& text : head_.texts) bytes += text.size() + settings_bytes_;
  return bytes;
}

std::string CompletionEncoder::OnReady(const PromptReady& ready, const EventContext& context) {
  Choice& choice = choices_.at(context.choice);
  choice.prompt_tokens = ready.prompt_tokens;
  ApplySampling(ready.sampling, head_.params);
  choice.clock.OnReady(ready, context.total);
  return OnProgress({ready.cached_tokens}, context);
}

std::string CompletionEncoder::OnProgress(const PrefillProgress& progress, const EventContext& context) {
  if (!head_.return_progress || !streams()) return {};
  Json chunk = EncodeChunk({}, context.choice);
  chunk["prompt_progress"] =
      choices_.at(context.choice).clock.Progress(progress.computed_tokens, context.total);
  return openai::ServerSentEvent(chunk);
}

Json CompletionEncoder::EncodeChunk(const TextDelta& delta, size_t index) const {
  const Choice& choice = choices_.at(index);
  return {{"index", index},
          {"content", delta.text},
          {"tokens", EncodeIds(delta.token_ids)},
          {"stop", false},
          {"id_slot", head_.slot},
          {"tokens_predicted", choice.answer.tokens},
          {"tokens_evaluated", choice.prompt_tokens}};
}

std::string CompletionEncoder::OnDelta(const TextDelta& delta, const EventContext& context) {
  Choice& choice = choices_.at(context.choice);
  choice.line_broken = choice.line_broken || delta.text.find('\n') != std::string::npos;
  if (!streams()) {
    Append(choice.answer, delta);
    choice.answer.token_ids.insert(choice.answer.token_ids.end(), delta.token_ids.begin(),
                                   delta.token_ids.end());
    return {};
  }
  choice.answer.tokens += delta.tokens;
  choice.clock.OnDelta(delta, context.total);
  Json chunk = EncodeChunk(delta, context.choice);
  if (head_.timings_per_token) chunk["timings"] = choice.clock.Timings();
  if (head_.n_probs > 0) chunk["completion_probabilities"] = EncodeProbabilities(delta.logprobs);
  return openai::ServerSentEvent(chunk);
}

Json CompletionEncoder::EncodeLast(size_t index) const {
  const Choice& choice = choices_[index];
  const Finished& finished = *choice.finished;
  Json settings = EncodeSettings(head_.params);
  settings["stream"] = head_.stream;
  settings["n_probs"] = head_.n_probs;
  const bool grammar = head_.format && head_.format->kind == OutputFormat::Kind::kGrammar;
  settings["grammar"] = grammar ? head_.format->text : "";
  Json out = {{"index", index},
              {"content", choice.answer.text},
              {"tokens", head_.return_tokens ? EncodeIds(choice.answer.token_ids) : Json::array()},
              {"id_slot", head_.slot},
              {"stop", true},
              {"model", head_.model},
              {"tokens_predicted", finished.usage.output_tokens},
              {"tokens_evaluated", finished.usage.prompt_tokens},
              {"generation_settings", std::move(settings)},
              {"prompt", head_.texts[index]},
              {"has_new_line", choice.line_broken},
              {"truncated", finished.prompt_dropped > 0},
              {"stop_type", StopType(finished)},
              {"stopping_word", finished.stop_string},
              {"tokens_cached", finished.usage.cached_tokens},
              {"timings", EncodeTimings(finished.usage)}};
  if (head_.n_probs > 0 && !head_.stream) {
    out["completion_probabilities"] = EncodeProbabilities(choice.answer.logprobs);
  }
  return Selected(std::move(out), head_.response_fields);
}

std::string CompletionEncoder::OnFinished(const Finished& finished, const EventContext& context) {
  choices_.at(context.choice).finished = finished;
  choices_[context.choice].finished->context.clear();
  if (streams()) return openai::ServerSentEvent(EncodeLast(context.choice));
  const bool all = std::ranges::all_of(choices_, [](const Choice& one) { return one.finished.has_value(); });
  if (!all) return {};
  if (!head_.list) return DumpJson(EncodeLast(0));
  Json list = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) list.push_back(EncodeLast(i));
  return DumpJson(list);
}

std::string CompletionEncoder::OnFailed(const Error& error) { return openai::StreamError(error); }

}  // namespace quire::api::llama_server
