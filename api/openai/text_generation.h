// Text generation as Hugging Face's client asks for it at POST / (Text Generation Inference): a raw prompt
// and "parameters".
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/reply_encoder.h"
#include "api/json/type.h"
#include "api/openai/completions.h"

namespace quire::api::openai {

struct TextGenerationRequest : CompletionRequest {  // `model` may be empty
  bool details = false;
  std::string prefix = {};  // of the answer's text: the prompt, where it is asked for
};

// Whether a body of POST / asks for text, not for vectors: an object that has "parameters" or "stream". Reads
// only as much as that takes; false for what is no JSON.
bool IsTextGeneration(std::string_view body);

// Greedy unless "do_sample" or a parameter of sampling says otherwise; 100 tokens unless "max_new_tokens"
// does.
Result<TextGenerationRequest> ParseTextGeneration(std::string_view body);

// [{"generated_text", "details"}], or a server-sent event for each token, of which the last has these
// members.
class TextGenerationEncoder : public ReplyEncoder {
 public:
  explicit TextGenerationEncoder(const TextGenerationRequest& request);
  ~TextGenerationEncoder() override;
  size_t RepeatedBytes(const Event& event, size_t choice) const override;

 private:
  std::string OnDelta(const TextDelta& delta, const EventContext& context) override;
  std::string OnFinished(const Finished& finished, const EventContext& context) override;
  std::string OnFailed(const Error& error) override;

  const bool details_;
  TextDelta answer_;             // all of it; without its tokens where it is streamed
  size_t prefix_bytes_ = 0;      // at the beginning of its text, which are of the prompt
  std::unique_ptr<Json> event_;  // of the last token, until it is known whether another follows
  int tokens_ = 0;               // with an event
};

}  // namespace quire::api::openai
