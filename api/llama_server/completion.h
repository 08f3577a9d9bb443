// llama.cpp's /completion and /infill: bodies to a struct, events to reply bodies and server-sent events.
//
// Fields that another server of these routes would honor and this one does not are rejected by name; unknown
// ones are logged. Errors name the field by its path.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/prompt.h"
#include "api/base/reply_encoder.h"
#include "api/base/request.h"
#include "api/json/timings.h"
#include "api/json/type.h"

namespace quire::api::llama_server {

inline constexpr int32_t kSlotsMax = 256;

struct CompletionRequest {
  std::string model;               // empty = left out: the one that is loaded
  std::vector<Prompt> prompts;     // at least one: RawPrompt, TokenPrompt, MixedPrompt; or one FimPrompt
  std::vector<std::string> texts;  // of each prompt, as the reply repeats it; empty where it has token ids
  bool list = false;               // the body has a list of prompts
  int32_t n = 1;                   // choices per prompt
  bool stream = false;
  Options options;
  std::vector<std::string> unknown_options;            // for the log
  std::optional<std::chrono::nanoseconds> keep_alive;  // < 0 = never expires
  std::string cache_salt;
  int32_t n_probs = 0;
  bool return_tokens = false;
  int32_t slot = 0;  // that remembers the prompt and the answer
  int32_t predict_ms_max = 0;
  int32_t indent_min = 0;
  std::optional<OutputFormat> format;
  std::vector<std::string> response_fields;  // of the last object; empty = all
  bool return_progress = false;              // chunks with "prompt_progress" before the first token
  bool timings_per_token = false;            // every chunk has "timings"
};

Result<CompletionRequest> ParseCompletion(std::string_view body);
Result<CompletionRequest> ParseInfill(std::string_view body);

// llama.cpp's defaults.
Options DefaultOptions();

// One per choice: the choices of the first prompt, then those of the second. Only what is filled in is ever
// cut.
std::vector<Request> ToRequests(CompletionRequest request, const ModelDefaults& defaults);

// The options by llama.cpp's names: "generation_settings", and "params" of /props.
Json EncodeSettings(const GenerationParams& params);

// What a reply repeats of its request.
struct CompletionHead {
  std::string model;
  bool stream = false;
  bool list = false;  // the body is a list, as that of the request's prompts
  bool return_tokens = false;
  int32_t slot = 0;
  int32_t n_probs = 0;
  std::vector<std::string> texts;  // of each choice's prompt
  std::vector<std::string> response_fields;
  GenerationParams params;
  std::optional<OutputFormat> format;
  bool return_progress = false;
  bool timings_per_token = false;
};
CompletionHead HeadOf(const CompletionRequest& request, const ModelDefaults& defaults);

class CompletionEncoder : public ReplyEncoder {
 public:
  explicit CompletionEncoder(CompletionHead head);
  size_t RepeatedBytes(const Event& event, size_t choice) const override;

 private:
  struct Choice {
    TextDelta answer;  // all of it, without its text where it is streamed
    int32_t prompt_tokens = 0;
    AnswerClock clock;
    bool line_broken = false;
    std::optional<Finished> finished;
  };

  std::string OnReady(const PromptReady& ready, const EventContext& context) override;
  std::string OnProgress(const PrefillProgress& progress, const EventContext& context) override;
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
  std::string OnFailed(const Error& error) override;
  Json EncodeChunk(const TextDelta& delta, size_t index) const;
  Json EncodeLast(size_t index) const;

  CompletionHead head_;
  std::vector<Choice> choices_;
  size_t settings_bytes_ = 0;  // about: of the settings that the end of each choice repeats
};

}  // namespace quire::api::llama_server
