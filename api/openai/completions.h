// OpenAI's /v1/completions: raw prompts, as text or token ids, several at once, several choices of each.
//
// The parser takes the whole body as it came. Unknown fields are ignored; what is known but not done in this
// version is refused with kUnsupported. Errors name the field by its path.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/base/error.h"
#include "api/base/prompt.h"
#include "api/base/request.h"
#include "api/openai/choices.h"

namespace quire::api::openai {

struct CompletionRequest {
  std::string model;  // as sent; replies echo it. Not empty
  std::vector<std::variant<RawPrompt, TokenPrompt, FimPrompt>> prompts;  // at least one
  int32_t n = 1;                                                         // choices per prompt; >= 1
  bool echo = false;  // a choice's text begins with its prompt, and its log-probabilities with the prompt's
  bool stream = false;
  bool include_usage = false;
  bool chunk_per_token = false;
  bool return_progress = false;                        // chunks with "prompt_progress" before the first token
  bool timings_per_token = false;                      // every chunk has "timings"
  Options options;                                     // what is absent: see ToRequests()
  std::vector<std::string> unknown_options;            // for the log
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  std::string cache_salt;
  std::optional<int32_t> logprobs;  // alternatives per token
  int32_t prompt_logprobs = -1;     // as in ReplyHead
  std::optional<OutputFormat> format;
};

Result<CompletionRequest> ParseCompletion(std::string_view body);

// One per choice: the choices of the first prompt, then those of the second. Defaults: 16 tokens, temperature
// 1 and top_p 1, then the model's parameters, then the request's. Never cuts a prompt.
std::vector<Request> ToRequests(CompletionRequest request, const ModelDefaults& defaults);

// What each choice's text begins with.
struct Echoes {
  std::vector<std::optional<std::string>> texts =
      {};                 // as many as choices, or none; nothing: what its tokens are
  int32_t logprobs = -1;  // alternatives per token of the prompt; -1: none are told
};
Echoes EchoesOf(const CompletionRequest& request);

class CompletionEncoder : public ChoicesEncoder {
 public:
  CompletionEncoder(ReplyHead head, Echoes echoes);

 private:
  std::string EncodeDelta(Choice& choice, const TextDelta& delta, bool due) override;
  Json EncodeNothing(const Choice& choice) override;
  std::string EncodeEnd(Choice& choice) override;
  Json EncodeWhole(Choice& choice) override;
  // What comes before the text of the answer; `prompt`: of tokens that no delta had yet.
  static std::string EchoOnce(Choice& choice, const std::vector<TokenLogprob>& prompt);
  Json EncodeLogprobs(Choice& choice, const std::vector<TokenLogprob>& prompt,
                      const std::vector<TokenLogprob>& answer) const;

  int32_t echo_logprobs_;
};

}  // namespace quire::api::openai
