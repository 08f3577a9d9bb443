// The "normalizer" and "decoder" of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "runner/tokenizer/normalizer.h"
#include "runner/tokenizer/text_steps.h"
#include "runner/tokenizer/tokenizer.h"

namespace quire::runner::tokenizer {

struct LoadedNormalizer {
  NormalForm normal_form = NormalForm::kNone;
  std::vector<TextStep> steps;  // after it
};

struct LoadedDecoder {
  bool marks_are_spaces = false;
  LeadingSpaces leading_spaces = LeadingSpaces::kKeep;
};

// kBadModel names the field; so do kinds that are not supported. `value` may be null.
api::Result<LoadedNormalizer> LoadNormalizer(const nlohmann::json& value);
api::Result<LoadedDecoder> LoadDecoder(const nlohmann::json& value);

// When a Metaspace (pre-tokenizer or decoder) puts a mark before the text.
api::Result<MarkSpaces::Prefix> MetaspacePrefix(const nlohmann::json& metaspace, const std::string& path);

}  // namespace quire::runner::tokenizer
