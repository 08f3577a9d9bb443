#include "runner/tokenizer/digit_groups.h"

#include <algorithm>
#include <iterator>

#include "api/base/utf8.h"

namespace quire::runner::tokenizer {
namespace {

constexpr size_t kGroup = 3;

// A word boundary behind a digit is where no word character follows. A number that one follows is not cut at
// all.
constexpr std::string_view kNumberBeforeNoWord = R"((?<!\d)\d++(?!\w))";

constexpr DigitGroupPattern kPatterns[] = {
    {R"(\d{1,3}(?=(?:\d{3})*\b))", kNumberBeforeNoWord, DigitGroups::kIsolate},
    {R"(\d{1,3}(?=(?:\d{3})*(?!\w)))", kNumberBeforeNoWord, DigitGroups::kIsolate},
    {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", R"(\p{N}++)", DigitGroups::kIsolate},
    {R"((?=(\d{3})+(?!\d)))", R"(\d++)", DigitGroups::kCutBefore},
};

}  // namespace

const DigitGroupPattern* FindDigitGroups(std::string_view pattern) {
  const auto* found = std::ranges::find(kPatterns, pattern, &DigitGroupPattern::pattern);
  return found == std::end(kPatterns) ? nullptr : found;
}

std::vector<size_t> GroupStarts(DigitGroups groups, std::string_view number) {
  std::vector<size_t> digits;
  digits.reserve(number.size());
  for (size_t at = 0; at < number.size(); at += api::CodePointAt(number, at).bytes) digits.push_back(at);
  const size_t first = digits.size() % kGroup;
  std::vector<size_t> starts;
  starts.reserve(digits.size() / kGroup + 1);
  if (first != 0 && groups == DigitGroups::kIsolate) starts.push_back(0);
  for (size_t digit = first; digit < digits.size(); digit += kGroup) starts.push_back(digits[digit]);
  return starts;
}

}  // namespace quire::runner::tokenizer
