// Vocabularies of Hugging Face directories that have no tokenizer.json, as the text of one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "runner/weights/model_source.h"

namespace quire::runner::weights {

inline constexpr uint64_t kTokenizerBytesMax = uint64_t{128} << 20;  // of any of these files

// What tekken.json (Mistral's) says, else what vocab.json and merges.txt say; nothing when there are none.
// Roles of tokens that these files imply are added to `tokenizer_config` unless it has them. `model_type`: of
// config.json. kBadModel names the file; kUnsupported: a kind of tokenizer that only its tokenizer.json
// describes.
api::Result<std::optional<std::string>> ReadOtherVocabulary(const ModelSource& source,
                                                            std::string_view model_type,
                                                            nlohmann::ordered_json& tokenizer_config);

}  // namespace quire::runner::weights
