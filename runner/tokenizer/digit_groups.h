// Patterns that cut numbers into groups of three digits from the right. As regular expressions they look to
// the end of the number at every group, which takes time by the square of its length; here a number is found
// once and then cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire::runner::tokenizer {

enum class DigitGroups : uint8_t {
  kNone,
  kIsolate,    // each group is a match; the first has one to three digits
  kCutBefore,  // an empty match before each group of three
};

struct DigitGroupPattern {
  std::string_view pattern;  // as published
  std::string_view numbers;  // matches each number that it cuts, all of it
  DigitGroups groups = DigitGroups::kNone;
};

// Null for any other pattern.
const DigitGroupPattern* FindDigitGroups(std::string_view pattern);

// Where the groups of `number` begin, in bytes, in order: all for kIsolate, those of three for kCutBefore.
// REQUIRES: valid UTF-8.
std::vector<size_t> GroupStarts(DigitGroups groups, std::string_view number);

}  // namespace quire::runner::tokenizer
