#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/option_fields.h"
#include "api/json/sampler_fields.h"
#include "api/json/text.h"
#include "api/json/tokens.h"
#include "api/llama_server/completion.h"
#include "api/openai/chat.h"
#include "api/openai/parts.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::llama_server {
namespace {

constexpr std::string_view kPrompt = "prompt";
constexpr int64_t kRandomSeed = 0xFFFFFFFF;  // as llama.cpp spells -1
constexpr size_t kFimFilesMax = 1024;

bool HasNumber(const Json& list) {
  return std::ranges::any_of(list, [](const Json& one) { return one.is_number(); });
}

// A text, token ids, or both in a row.
std::optional<Prompt> PromptOf(const Json& value) {
  if (value.is_string()) return RawPrompt{TakeText(value)};
  if (!value.is_array() || value.empty()) return std::nullopt;
  if (auto tokens = AsTokenIds(value)) return TokenPrompt{*std::move(tokens)};
  MixedPrompt mixed;
  for (const Json& one : value) {
    if (one.is_string()) {
      mixed.pieces.push_back({TakeText(one), {}});
      continue;
    }
    const auto token = AsTokenIds(Json::array({one}));
    if (!token) return std::nullopt;
    if (mixed.pieces.empty() || mixed.pieces.back().tokens.empty()) mixed.pieces.emplace_back();
    mixed.pieces.back().tokens.push_back(token->front());
  }
  return mixed;
}

void AddPrompt(Fields& body, const Json& value, CompletionRequest& request) {
  auto prompt = PromptOf(value);
  if (!prompt) {
    return body.Reject(kPrompt,
                       "must be a string, an array of strings and token ids, or an array of such prompts");
  }
  const auto* raw = std::get_if<RawPrompt>(&*prompt);
  request.texts.push_back(raw == nullptr ? "" : raw->text);
  request.prompts.push_back(*std::move(prompt));
}

// An array with a number is one prompt, any other a list of prompts.
void GetPrompts(Fields& body, CompletionRequest& request) {
  const Json* value = body.Find(kPrompt);
  if (value == nullptr) return body.Reject(kPrompt, "is required");
  request.list = value->is_array() && !HasNumber(*value);
  if (!request.list) return AddPrompt(body, *value, request);
  if (value->empty() || value->size() > size_t{kChoicesMax}) {
    return body.Reject(kPrompt, fmt::format("must contain 1 to {} prompts", kChoicesMax));
  }
  for (const Json& one : *value) AddPrompt(body, one, request);
}

// What the cursor's line has before the cursor stands in "prompt".
void GetFim(Fields& body, CompletionRequest& request) {
  FimPrompt fim;
  std::string line;
  body.Take("input_prefix", fim.prefix);
  body.Take("input_suffix", fim.suffix);
  body.Take(kPrompt, line);
  AppendText(fim.prefix, std::move(line));
  if (const Json* list = body.FindArray("input_extra")) {
    if (list->size() > kFimFilesMax) {
      return body.Reject("input_extra", fmt::format("must contain at most {} files", kFimFilesMax));
    }
    for (const Json& one : *list) {
      Fields file(one, body.PathOf(fmt::format("input_extra[{}]", fim.files.size())), body.error());
      FimFile& out = fim.files.emplace_back();
      file.Get("filename", out.name);
      if (!file.Take("text", out.text)) file.Reject("text", "is required and must be of type string");
    }
  }
  request.texts.emplace_back();
  request.prompts.emplace_back(std::move(fim));
}

// [[id, bias | false], ...], or an object as OpenAI has it.
void GetLogitBias(Fields& body, Options& options) {
  constexpr std::string_view kName = "logit_bias";
  const Json* value = body.Find(kName);
  if (value == nullptr || !value->is_array()) return GetOption(body, kName, options);
  if (value->size() > kLogitBiasesMax) {
    return body.Reject(kName, fmt::format("must contain at most {} tokens", kLogitBiasesMax));
  }
  std::vector<LogitBias> list;
  for (const Json& pair : *value) {
    const bool whole = pair.is_array() && pair.size() == 2;
    if (whole && pair[0].is_string()) {
      return openai::Refuse(body, kName, "logit_bias: texts are not supported; use token ids");
    }
    const auto token = whole ? AsTokenIds(Json::array({pair[0]})) : std::nullopt;
    const bool banned = whole && pair[1].is_boolean() && !pair[1].get<bool>();
    if (!token || !(banned || pair[1].is_number())) {
      return body.Reject(kName, "must be an array of [token id, number or false]");
    }
    const auto bias = banned ? -double{kLogitBiasMax} : pair[1].get<double>();
    if (!(bias >= -double{kLogitBiasMax} && bias <= double{kLogitBiasMax})) {
      return body.Reject(kName, fmt::format("must have biases from -{0:g} to {0:g}", kLogitBiasMax));
    }
    list.push_back({token->front(), static_cast<float>(bias)});
  }
  options.logit_bias = std::move(list);
}

void GetSampling(Fields& body, CompletionRequest& request) {
  Options& options = request.options;
  GetOptions(body, options, request.unknown_options);
  VisitOptions([&](const OptionRow& row) {
    if (row.name != "logit_bias") GetOption(body, row.name, options);
  });
  body.Get("repetition_penalty", options.repeat_penalty, 0.0F);
  for (const std::string_view name : {"max_new_tokens", "max_completion_tokens", "max_tokens", "n_predict"})
    body.Get(name, options.num_predict);
  body.Get("n_keep", options.num_keep, -1);
  if (options.seed == kRandomSeed) options.seed = -1;
  GetLogitBias(body, options);
  GetSamplers(body, options, request.unknown_options);
}

void GetResponseFields(Fields& body, CompletionRequest& request) {
  constexpr std::string_view kName = "response_fields";
  const Json* list = body.FindArray(kName);
  if (list == nullptr) return;
  if (list->size() > kResponseFieldsMax) {
    return body.Reject(kName, fmt::format("must contain at most {} names", kResponseFieldsMax));
  }
  std::vector<std::string>& names = request.response_fields;
  for (const Json& name : *list) {
    if (!name.is_string()) return body.Reject(kName, "must be an array of strings");
    const auto& text = name.get_ref<const std::string&>();
    if (std::ranges::find(names, text) == names.end())
      names.push_back(text);  // the reply has each member once
  }
}

void GetRest(Fields& body, CompletionRequest& request) {
  request.model = GetModelIfAny(body);
  body.Get("stream", request.stream);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetSampling(body, request);
  body.Get("n_probs", request.n_probs, 0, kTopCandidatesMax);
  body.Get("return_tokens", request.return_tokens);
  // Negative and 0: no limit.
  body.Get("t_max_predict_ms", request.predict_ms_max);
  body.Get("n_indent", request.indent_min);
  request.predict_ms_max = std::max(request.predict_ms_max, 0);
  request.indent_min = std::max(request.indent_min, 0);
  int32_t slot = -1;
  body.Get("id_slot", slot, -1, kSlotsMax - 1);
  request.slot = std::max(slot, 0);
  GetResponseFields(body, request);
  openai::GetProgress(body, request);
}

// "n_cmpl", or "n". Every choice has a copy of its prompt and of the format.
void GetChoices(Fields& body, CompletionRequest& request, size_t body_bytes) {
  body.Get("n", request.n, 1, kChoicesMax);
  const std::string_view name = body.Get("n_cmpl", request.n, 1, kChoicesMax) ? "n_cmpl" : "n";
  const size_t choices = request.prompts.size() * static_cast<size_t>(request.n);
  if (choices > size_t{kChoicesMax}) {
    body.Reject(name, fmt::format("results in more than {} choices", kChoicesMax));
  }
  CopyBudget copies(body);
  copies.Share(name, body_bytes, static_cast<size_t>(request.n), openai::kForAllChoices);
  const auto& format = request.format;
  if (format) copies.Share(format->field, format->text.size(), choices, openai::kForAllChoices);
}

template <class Get>
Result<CompletionRequest> Parse(std::string_view text, Get get) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  CompletionRequest request;
  FirstError error;
  Fields body(*json, "", error);
  request.format = GetResponseFormat(body);
  get(body, request);
  GetRest(body, request);
  openai::RefuseUnsupported(body, openai::Route::kLlamaServer);
  openai::AddUnread(body, request.unknown_options);
  if (error) return std::unexpected(std::move(*error));
  return request;
}

}  // namespace

Result<CompletionRequest> ParseCompletion(std::string_view text) {
  return Parse(text, [size = text.size()](Fields& body, CompletionRequest& request) {
    GetPrompts(body, request);
    GetChoices(body, request, size);
  });
}

Result<CompletionRequest> ParseInfill(std::string_view text) { return Parse(text, GetFim); }

Options DefaultOptions() {
  Options options;
  options.top_p = 0.95F;
  options.min_p = 0.05F;
  return options;
}

std::vector<Request> ToRequests(CompletionRequest completion, const ModelDefaults& defaults) {
  Request base;
  SetOptions(DefaultOptions(), defaults.options, completion.options, base);
  base.shift = false;
  base.client.cache_salt = std::move(completion.cache_salt);
  base.logprobs = completion.n_probs > 0;
  base.top_logprobs = completion.n_probs;
  base.format = std::move(completion.format);
  base.predict_ms_max = completion.predict_ms_max;
  base.indent_min = completion.indent_min;
  base.report_progress = completion.return_progress;
  base.return_context = completion.prompts.size() * static_cast<size_t>(completion.n) == 1;
  std::vector<Request> requests;
  for (Prompt& prompt : completion.prompts) {
    Request request = base;
    const bool fim = std::holds_alternative<FimPrompt>(prompt);
    request.overflow = fim ? Overflow::kTruncate : Overflow::kRefuse;
    request.prompt = std::move(prompt);
    for (Request& choice : openai::ToChoices(std::move(request), completion.n)) {
      requests.push_back(std::move(choice));
    }
  }
  return requests;
}

}  // namespace quire::api::llama_server
