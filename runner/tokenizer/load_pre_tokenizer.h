// The "normalizer" and "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "api/error.h"
#include "runner/tokenizer/normalizer.h"
#include "runner/tokenizer/pre_tokenizer.h"

namespace quire::runner::tokenizer {

// kBadModel names the field; so do kinds that are not supported. `value` may be null.
api::Result<NormalForm> LoadNormalForm(const nlohmann::json& value);

// The same. Refuses what does not end in ByteLevel: the model is then not a byte-level one.
api::Result<PreTokenizer> LoadPreTokenizer(const nlohmann::json& value);

}  // namespace quire::runner::tokenizer
