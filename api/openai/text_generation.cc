#include "api/openai/text_generation.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/utf8.h"
#include "api/json/body.h"
#include "api/json/encode_parts.h"
#include "api/json/format_fields.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"
#include "api/json/text.h"
#include "api/openai/chat.h"
#include "api/openai/parts.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::openai {
namespace {

constexpr int32_t kNewTokens = 100;

// The text behind a string of JSON, whose opening quote is at `at`.
size_t BehindString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

Json TokenOf(const TextDelta& delta) {
  const TokenCandidate token = delta.logprobs.empty() ? TokenCandidate() : delta.logprobs.front().chosen;
  return {{"id", token.id},
          {"text", delta.text},
          {"logprob", JsonLogprob(token.logprob)},
          {"special", delta.tokens == 0}};
}

std::string_view FinishOf(const Finished& finished) {
  if (finished.reason == FinishReason::kLength) return "length";
  return finished.stop_string.empty() ? "eos_token" : "stop_sequence";
}

void GetParameters(Fields& fields, TextGenerationRequest& request, bool& full_text) {
  Options& options = request.options;
  for (const std::string_view name :
       {"temperature", "top_k", "top_p", "typical_p", "frequency_penalty", "presence_penalty", "seed"})
    GetOption(fields, name, options);
  const bool sets_sampling = options.temperature || options.top_k || options.top_p || options.typical_p;
  bool samples = sets_sampling;
  fields.Get("do_sample", samples);
  if (!samples && !sets_sampling) options.temperature = 0.0F;
  fields.Get("repetition_penalty", options.repeat_penalty, 0.0F);
  options.num_predict = kNewTokens;
  fields.Get("max_new_tokens", options.num_predict, 1);
  GetStop(fields, "stop", options);
  fields.Get("details", request.details);
  fields.Get("return_full_text", full_text);
  request.format = GetTypedFormatAs(fields, "grammar");
  CheckBestOf(fields, 1);
  for (const std::string_view name :
       {"adapter_id", "decoder_input_details", "top_n_tokens", "truncate", "watermark"}) {
    const Json* value = fields.Find(name);
    if (value != nullptr && *value != false) Refuse(fields, name, std::string(name) + ": not supported");
  }
  AddUnread(fields, request.unknown_options);
}

}  // namespace

bool IsTextGeneration(std::string_view body) {
  int depth = 0;
  bool is_name = false;  // the next string of the outermost object
  for (size_t at = 0; at < body.size();) {
    const char c = body[at];
    if (c == '"') {
      const size_t end = BehindString(body, at);
      const std::string_view text = body.substr(at, end - at);
      if (depth == 1 && is_name && (text == "\"parameters\"" || text == "\"stream\"")) return true;
      is_name = false;
      at = end;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if ((c == '{' || c == ',') && depth == 1) is_name = true;
    ++at;
  }
  return false;
}

Result<TextGenerationRequest> ParseTextGeneration(std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  TextGenerationRequest request;
  FirstError error;
  Fields body(*json, "", error);
  body.Get("model", request.model);
  body.Get("stream", request.stream);
  request.keep_alive = GetKeepAlive(body);
  std::string prompt;
  if (!body.Take("inputs", prompt) || prompt.empty())
    body.Reject("inputs", "is required and must be a non-empty string");
  static const Json kNone = Json::object();
  const Json* parameters = body.FindObject("parameters");
  Fields fields(parameters == nullptr ? kNone : *parameters, "parameters", error);
  bool full_text = false;
  GetParameters(fields, request, full_text);
  AddUnread(body, request.unknown_options);
  if (error) return std::unexpected(std::move(*error));
  if (full_text) request.prefix = prompt;
  request.prompts.emplace_back(RawPrompt{std::move(prompt)});
  request.chunk_per_token = request.stream;
  if (request.stream || request.details) request.logprobs = 0;
  return request;
}

TextGenerationEncoder::TextGenerationEncoder(const TextGenerationRequest& request)
    : ReplyEncoder(request.stream, kEventStream, kWaiting),
      details_(request.details),
      prefix_bytes_(request.prefix.size()) {
  answer_.text = request.prefix;
}

TextGenerationEncoder::~TextGenerationEncoder() = default;

size_t TextGenerationEncoder::RepeatedBytes(const Event& event, size_t) const {
  if (!std::holds_alternative<Finished>(event)) return 0;
  return streams() ? answer_.text.size() : prefix_bytes_;
}

std::string TextGenerationEncoder::OnDelta(const TextDelta& delta, const EventContext&) {
  if (!streams()) {
    Append(answer_, delta);
    return {};
  }
  answer_.text += delta.text;
  std::string sent;
  if (event_) sent = ServerSentEvent(*event_);
  event_ = std::make_unique<Json>(Json::object());
  (*event_)["index"] = ++tokens_;
  (*event_)["token"] = TokenOf(delta);
  (*event_)["generated_text"] = nullptr;
  (*event_)["details"] = nullptr;
  return sent;
}

std::string TextGenerationEncoder::OnFinished(const Finished& finished, const EventContext&) {
  Json details = {{"finish_reason", FinishOf(finished)},
                  {"generated_tokens", finished.usage.output_tokens},
                  {"input_length", finished.usage.prompt_tokens},
                  {"seed", nullptr}};
  if (streams()) {
    Json last = {{"index", event_ ? tokens_ : 1}};
    last["token"] = event_ ? *event_->find("token") : TokenOf({});
    last["generated_text"] = answer_.text;
    last["details"] = std::move(details);
    return ServerSentEvent(last);
  }
  Json whole = {{"generated_text", answer_.text}};
  if (!details_) return DumpJson(Json::array({std::move(whole)}));
  Json tokens = Json::array();
  for (const TokenLogprob& token : answer_.logprobs) {
    Json entry = {{"id", token.chosen.id},
                  {"text", ReplaceInvalidUtf8(token.chosen.bytes)},
                  {"logprob", JsonLogprob(token.chosen.logprob)},
                  {"special", false}};
    tokens.push_back(std::move(entry));
  }
  details["prefill"] = Json::array();
  details["tokens"] = std::move(tokens);
  whole["details"] = std::move(details);
  return DumpJson(Json::array({std::move(whole)}));
}

std::string TextGenerationEncoder::OnFailed(const Error& error) { return StreamError(error); }

}  // namespace quire::api::openai
