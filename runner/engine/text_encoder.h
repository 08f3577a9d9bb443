// Turns the texts of one request into token ids, within the bounds that its context sets.
#pragma once

#include <cstdint>
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

// Immutable. Errors: kContextLengthExceeded, of a prompt that is only described kTooLarge: the text is beyond the bounds.
// Long texts are refused by their bytes, without being read.
class TextEncoder {
 public:
  // The template and the request outlive the encoder.
  TextEncoder(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const PromptTemplate& prompt_template,
              const api::Request& request, int32_t num_ctx);

  // With BOS, if the model wants one and the template leaves it to the tokenizer.
  api::Result<std::vector<api::TokenId>> EncodeRendered(const std::vector<PromptSegment>& rendered) const;
  api::Result<std::vector<api::TokenId>> EncodeText(std::string_view text,
                                                    tokenizer::SpecialTokens special) const;
  // Where the model wants BOS and the tokens do not begin with it.
  void AddBos(std::vector<api::TokenId>& tokens) const;
  std::string TextOf(const std::vector<api::TokenId>& tokens) const;
  // kInvalidArgument names the field: an id that the model does not have.
  api::Result<void> CheckIds(const std::vector<api::TokenId>& ids, std::string_view field) const;

 private:
  api::Result<std::vector<api::TokenId>> EncodeBounded(std::span<const tokenizer::Segment> segments) const;
  api::Error BeyondBounds(const api::TextBounds& bounds) const;

  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const PromptTemplate& prompt_template_;
  const api::Request& request_;
  const int32_t num_ctx_;
};

}  // namespace quire::runner::engine
