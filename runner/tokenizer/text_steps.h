// The steps applied to plain text before it is split, beside Unicode normalization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runner/tokenizer/bert_text.h"
#include "runner/tokenizer/character_map.h"
#include "runner/tokenizer/normalizer.h"

namespace quire::runner::tokenizer {

// SentencePiece writes spaces as this character, U+2581.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

struct Prepend {
  std::string text;  // before every stretch that is not empty
};
struct Replace {
  std::string from;  // not empty; literal
  std::string to;
};
// Spaces become marks, and the stretch gets a mark in front unless it begins with one.
struct MarkSpaces {
  enum class Prefix : uint8_t { kNever, kAtStartOfText, kAlways };
  Prefix prefix = Prefix::kNever;
};
struct SquashSpaces {};  // none at either end, one where there are several
struct OneSpace {        // for several
  std::string to = " ";  // it, or the mark
};
struct SpaceWords {};  // words with one space between them, for white space of any kind
struct Strip {         // white space at the ends
  bool left = true, right = true;
};
using TextStep = std::variant<Prepend, Replace, MarkSpaces, SquashSpaces, OneSpace, SpaceWords, Strip,
                              NormalForm, BertText, std::shared_ptr<const CharacterMap>>;

// The maximum expansion of one byte of text.
inline constexpr size_t kStepTextBytesMax = 64;

// What lies before a stretch: nothing, an added token, or more of the same stretch (then nothing is put in
// front).
enum class Before : uint8_t { kNothing, kToken, kSameStretch };

// Linear. REQUIRES: valid UTF-8.
std::string Apply(const std::vector<TextStep>& steps, std::string_view stretch, Before before);

}  // namespace quire::runner::tokenizer
