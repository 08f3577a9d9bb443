// Cuts plain text into the pieces that the subword model works on one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "runner/tokenizer/digit_groups.h"
#include "runner/tokenizer/regex.h"

namespace quire::runner::tokenizer {

// The treatment of the matches of a step's pattern.
enum class SplitBehavior : uint8_t {
  kIsolated,            // a piece each
  kRemoved,             // left out
  kMergedWithPrevious,  // end of the piece before
  kMergedWithNext,      // beginning of the piece after
  kContiguous,          // neighboring matches are one piece
};

struct SplitStep {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what lies between the matches counts as matches
  DigitGroups groups =
      DigitGroups::kNone;  // otherwise `regex` matches numbers, and their groups are the matches
};

// kBadModel gives the reason.
api::Result<SplitStep> CompileSplit(std::string_view pattern, Regex::Syntax syntax);

struct Piece {
  size_t begin = 0;
  size_t end = 0;
};

// Immutable; any thread.
struct PreTokenizer {
  std::vector<SplitStep> steps;   // each cuts the pieces of the one before
  bool add_prefix_space = false;  // a stretch that does not begin with a space gets one (the caller does it)
  // Afterwards, cut before each space mark (text_steps.h) that another character precedes. Set where no token
  // goes across such a place: the ids are the same, and a repeated word is work once.
  bool cut_words = false;

  // In order; no piece is empty. Where a pattern exceeds the limits of matching, the rest of what it works on
  // is one piece: the tokens are then longer than they might be, but stand for the same text. REQUIRES: valid
  // UTF-8.
  std::vector<Piece> Split(std::string_view text, RegexMatcher& matcher) const;
};

}  // namespace quire::runner::tokenizer
