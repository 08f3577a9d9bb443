// Unicode normalization of a text before it is split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire::runner::tokenizer {

enum class NormalForm : uint8_t { kNone, kNfc, kNfd, kNfkc, kNfkd };

// Whether Normalize might return something else; quick, and false only when it would not.
bool MayChange(NormalForm form, std::string_view text);

// Linear in the text but for sorting runs of combining marks (n log n of the run). REQUIRES: valid UTF-8.
std::string Normalize(NormalForm form, std::string_view text);

}  // namespace quire::runner::tokenizer
