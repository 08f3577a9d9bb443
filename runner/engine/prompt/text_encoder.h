// Turns the texts of one request into token ids, within the bounds that its context sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "api/base/text_bounds.h"
#include "runner/prompt/prompt_template.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::engine {

// Immutable. Errors: kContextLengthExceeded, of a prompt that is only described kTooLarge: the text is beyond
// the bounds. Long texts are refused by their bytes, without being read.
class TextEncoder {
 public:
  // The template and the request outlive the encoder.
  TextEncoder(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const PromptTemplate& prompt_template,
              const api::Request& request, int32_t num_ctx);

  // With BOS, if the model wants one and the template leaves it to the tokenizer. More than `tokens_max`
  // tokens are beyond the bounds, too, unless the prompt is only described.
  api::Result<std::vector<api::TokenId>> EncodeRendered(
      const std::vector<PromptSegment>& rendered,
      size_t tokens_max = std::numeric_limits<size_t>::max()) const;
  api::Result<std::vector<api::TokenId>> EncodeText(std::string_view text,
                                                    tokenizer::SpecialTokens special) const;
  // Where the model wants BOS and the tokens do not begin with it.
  void AddBos(std::vector<api::TokenId>& tokens) const;
  std::string TextOf(const std::vector<api::TokenId>& tokens) const;
  // kInvalidArgument names the field: an id that the model does not have.
  api::Result<void> CheckIds(const std::vector<api::TokenId>& ids, std::string_view field) const;

 private:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  api::Result<std::vector<api::TokenId>> EncodeBounded(std::span<const tokenizer::Segment> segments,
                                                       size_t tokens_max = kNoLimit) const;
  api::Error BeyondBounds(const api::TextBounds& bounds) const;

  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const PromptTemplate& prompt_template_;
  const api::Request& request_;
  const int32_t num_ctx_;
};

}  // namespace quire::runner::engine
