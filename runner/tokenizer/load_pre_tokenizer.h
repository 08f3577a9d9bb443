// The "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "api/base/error.h"
#include "runner/tokenizer/pre_tokenizer.h"
#include "runner/tokenizer/text_steps.h"

namespace quire::runner::tokenizer {

struct LoadedPreTokenizer {
  PreTokenizer splits;
  bool byte_level = false;                // the vocabulary is written in the byte-level alphabet
  bool words = false;                     // white space is only what lies between words
  std::optional<MarkSpaces> mark_spaces;  // before the splits
};

// kBadModel names the field; so do kinds that are not supported. `value` may be null.
api::Result<LoadedPreTokenizer> LoadPreTokenizer(const nlohmann::json& value);

}  // namespace quire::runner::tokenizer
