#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/limits.h"
#include "api/json/body.h"
#include "api/json/copy_budget.h"
#include "api/json/format_fields.h"
#include "api/json/text.h"
#include "api/json/tokens.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"
#include "api/openai/parts.h"
#include "api/openai/unsupported_fields.h"

namespace quire::api::openai {
namespace {

using Prompts = std::vector<std::variant<RawPrompt, TokenPrompt, FimPrompt>>;

constexpr std::string_view kPrompt = "prompt";

void RejectPrompt(Fields& body) {
  body.Reject(kPrompt,
              "must be a string, an array of strings, an array of token ids or an array of token id arrays");
}

void GetPrompts(Fields& body, Prompts& prompts) {
  const Json* value = body.Find(kPrompt);
  if (value == nullptr) return body.Reject(kPrompt, "is required");
  if (value->is_string()) {
    prompts.push_back(RawPrompt{TakeText(*value)});
    return;
  }
  if (!value->is_array() || value->empty()) return RejectPrompt(body);
  if (value->front().is_number()) {
    auto tokens = AsTokenIds(*value);
    if (!tokens) return RejectPrompt(body);
    prompts.push_back(TokenPrompt{*std::move(tokens)});
    return;
  }
  if (value->size() > size_t{kChoicesMax}) {
    return body.Reject(kPrompt, fmt::format("must contain at most {} prompts", kChoicesMax));
  }
  for (const Json& one : *value) {
    if (one.type() != value->front().type()) return RejectPrompt(body);
    if (one.is_string()) {
      prompts.push_back(RawPrompt{TakeText(one)});
      continue;
    }
    auto tokens = AsTokenIds(one);
    if (!tokens) return RejectPrompt(body);
    prompts.push_back(TokenPrompt{*std::move(tokens)});
  }
}

// BOS before a text, of models that use one.
void GetSpecial(Fields& body, Prompts& prompts) {
  bool add = true;
  if (!body.Get("add_special_tokens", add)) return;
  for (auto& prompt : prompts) {
    if (auto* raw = std::get_if<RawPrompt>(&prompt)) raw->add_special = add;
  }
}

// With a suffix every prompt is what comes before the place that is to be filled in. Each of the `choices`
// has both.
void GetSuffix(Fields& body, size_t choices, CopyBudget& copies, Prompts& prompts) {
  std::string suffix;
  body.Take("suffix", suffix);
  if (suffix.empty() || !copies.Share("suffix", suffix.size(), choices, kForAllChoices)) return;
  for (auto& prompt : prompts) {
    auto* raw = std::get_if<RawPrompt>(&prompt);
    if (raw == nullptr) return Refuse(body, "suffix", "suffix: supported only for text prompts");
    if (!raw->add_special)
      return Refuse(body, "add_special_tokens", "add_special_tokens: must be true with suffix");
    prompt = FimPrompt{std::move(raw->text), suffix};
  }
}

void GetEcho(Fields& body, CompletionRequest& request) {
  body.Get("echo", request.echo);
  if (!request.echo) return;
  const Json* suffix = body.Find("suffix");
  if (!request.logprobs || suffix == nullptr || IsText(*suffix, "")) return;
  Refuse(body, "echo", "echo: logprobs of a prompt with suffix are not supported");
}

// The number of choices of all prompts.
size_t CountChoices(Fields& body, const CompletionRequest& request) {
  const size_t choices = request.prompts.size() * static_cast<size_t>(request.n);
  if (choices > size_t{kChoicesMax}) {
    body.Reject("n", fmt::format("results in {} choices for {} prompts, more than {}", choices,
                                 request.prompts.size(), kChoicesMax));
  }
  CheckBestOf(body, request.n);
  return choices;
}

void GetCompletionBody(Fields& body, CompletionRequest& request, size_t body_bytes) {
  request.model = GetModel(body);
  GetPrompts(body, request.prompts);
  GetStream(body, request);
  GetProgress(body, request);
  request.keep_alive = GetKeepAlive(body);
  request.cache_salt = GetCacheSalt(body);
  GetSampling(body, request.options, request.unknown_options);
  body.Get("logprobs", request.logprobs, 0, kTopLogprobsMax);
  GetPromptLogprobs(body, request);
  GetEcho(body, request);
  CopyBudget copies(body);
  request.n = GetChoices(body, body_bytes, copies);
  const size_t choices = CountChoices(body, request);
  GetSpecial(body, request.prompts);
  GetSuffix(body, choices, copies, request.prompts);
  request.format = GetResponseFormat(body);
  if (request.format)
    copies.Share(request.format->field, request.format->text.size(), choices, kForAllChoices);
  RefuseUnsupported(body, Route::kCompletions);
  AddUnread(body, request.unknown_options);
}

}  // namespace

Result<CompletionRequest> ParseCompletion(std::string_view text) {
  auto json = ReadBody(text);
  if (!json) return std::unexpected(json.error());
  CompletionRequest request;
  FirstError error;
  Fields body(*json, "", error);
  GetCompletionBody(body, request, text.size());
  if (error) return std::unexpected(std::move(*error));
  return request;
}

std::vector<Request> ToRequests(CompletionRequest completion, const ModelDefaults& defaults) {
  constexpr int32_t kNumPredict = 16;  // as OpenAI's reference says
  Options dialect;
  dialect.num_predict = kNumPredict;
  dialect.temperature = 1.0F;
  dialect.top_p = 1.0F;
  Request base;
  SetOptions(dialect, defaults.options, completion.options, base);
  base.overflow = Overflow::kRefuse;
  base.shift = false;  // neither the prompt nor the answer's context is cut here
  base.client.cache_salt = std::move(completion.cache_salt);
  base.logprobs = completion.logprobs.has_value();
  base.delta_per_token = completion.chunk_per_token;
  base.report_progress = completion.return_progress;
  base.top_logprobs = completion.logprobs.value_or(0);
  const int32_t echoed = completion.echo ? completion.logprobs.value_or(-1) : -1;
  base.prompt_logprobs = std::max(completion.prompt_logprobs, echoed);
  base.format = std::move(completion.format);
  std::vector<Request> requests;
  for (auto& prompt : completion.prompts) {
    Request request = base;
    request.return_prompt_tokens =
        completion.echo && (completion.logprobs || std::holds_alternative<TokenPrompt>(prompt));
    std::visit([&request](auto& kind) { request.prompt = std::move(kind); }, prompt);
    for (Request& choice : ToChoices(std::move(request), completion.n)) requests.push_back(std::move(choice));
  }
  return requests;
}

Echoes EchoesOf(const CompletionRequest& request) {
  Echoes echoes;
  if (!request.echo) return echoes;
  echoes.logprobs = request.logprobs.value_or(-1);
  for (const auto& prompt : request.prompts) {
    std::optional<std::string> text;
    if (const auto* raw = std::get_if<RawPrompt>(&prompt)) text = raw->text;
    if (const auto* fim = std::get_if<FimPrompt>(&prompt)) text = fim->prefix;
    echoes.texts.insert(echoes.texts.end(), static_cast<size_t>(request.n), text);
  }
  return echoes;
}

}  // namespace quire::api::openai
