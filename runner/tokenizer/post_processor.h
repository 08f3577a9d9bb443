// The "post_processor" of a tokenizer.json: which special tokens frame a text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "runner/tokenizer/bpe.h"

namespace quire::runner::tokenizer {

struct TextFrame {
  api::TokenId prefix = kNoToken;
  api::TokenId suffix = kNoToken;
  bool decides = false;  // there is a template, be it without special tokens
};

// kBadModel names the field. Ids are checked against vocab_size.
api::Result<TextFrame> LoadPostProcessor(const nlohmann::json& value, int32_t vocab_size);

}  // namespace quire::runner::tokenizer
