// Pieces of OpenAI's requests and replies that its endpoints share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/limits.h"
#include "api/base/request.h"
#include "api/json/copy_budget.h"
#include "api/json/fields.h"
#include "api/json/type.h"

namespace quire::api::openai {

// ---- requests ----

// kUnsupported, for the member `field`.
void Refuse(Fields& fields, std::string_view field, std::string message);

// Sampling fields of the body, over those of its "options"; logit_bias and the maximum number of tokens too.
void GetSampling(Fields& body, Options& options, std::vector<std::string>& unknown);

// "n": choices per prompt. Each is a request of its own, so what they hold together is within the budget.
int32_t GetChoices(Fields& body, size_t body_bytes, CopyBudget& copies);
inline constexpr std::string_view kForAllChoices = "for all choices";
// "best_of", which must be the same.
void CheckBestOf(Fields& body, int32_t choices);

// "stream" and "stream_options", of a chat or a completion.
template <class Parsed>
void GetStream(Fields& body, Parsed& request) {
  body.Get("stream", request.stream);
  // As OpenRouter spells it.
  if (const Json* usage = body.FindObject("usage"))
    Fields(*usage, "usage", body.error()).Get("include", request.include_usage);
  const Json* options = body.FindObject("stream_options");
  if (options == nullptr) return;
  Fields fields(*options, "stream_options", body.error());
  fields.Get("include_usage", request.include_usage);
  fields.Get("continuous_usage_stats", request.chunk_per_token);
}

// "return_progress" and "timings_per_token" of llama.cpp's server, which count only together with "stream".
template <class Parsed>
void GetProgress(Fields& body, Parsed& request) {
  body.Get("return_progress", request.return_progress);
  body.Get("timings_per_token", request.timings_per_token);
  request.return_progress = request.return_progress && request.stream;
}

// "prompt_logprobs" of vLLM, which has none in streams: as in ReplyHead.
template <class Parsed>
void GetPromptLogprobs(Fields& body, Parsed& request) {
  body.Get("prompt_logprobs", request.prompt_logprobs, 0, kTopLogprobsMax);
  if (request.prompt_logprobs >= 0 && request.stream)
    Refuse(body, "prompt_logprobs", "prompt_logprobs: not supported with stream");
}

// ---- replies ----

std::string ServerSentEvent(const Json& data);
int64_t Seconds(std::chrono::system_clock::time_point time);  // since 1970

}  // namespace quire::api::openai
