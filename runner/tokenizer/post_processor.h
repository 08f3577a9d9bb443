// The "post_processor" of a tokenizer.json: which special tokens frame a text.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/text_frame.h"

namespace quire::runner::tokenizer {

struct TextFrame {
  api::TokenId prefix = kNoToken;
  api::TokenId suffix = kNoToken;
  bool decides = false;  // there is a template, be it without special tokens
  PairFrame pair;
};

// begin first end between second end; kNoToken is left out.
PairFrame FrameOfPair(api::TokenId begin, api::TokenId end, api::TokenId between, int32_t second_type);

// kBadModel names the field. Ids are checked against vocab_size.
api::Result<TextFrame> LoadPostProcessor(const nlohmann::json& value, int32_t vocab_size);

}  // namespace quire::runner::tokenizer
