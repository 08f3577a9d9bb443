#include "runner/constraint/character_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

// In the order of utf8proc_category_t.
constexpr auto kCategories = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"Cn", "Unassigned"},
    {"Lu", "Uppercase_Letter"},
    {"Ll", "Lowercase_Letter"},
    {"Lt", "Titlecase_Letter"},
    {"Lm", "Modifier_Letter"},
    {"Lo", "Other_Letter"},
    {"Mn", "Nonspacing_Mark"},
    {"Mc", "Spacing_Mark"},
    {"Me", "Enclosing_Mark"},
    {"Nd", "Decimal_Number"},
    {"Nl", "Letter_Number"},
    {"No", "Other_Number"},
    {"Pc", "Connector_Punctuation"},
    {"Pd", "Dash_Punctuation"},
    {"Ps", "Open_Punctuation"},
    {"Pe", "Close_Punctuation"},
    {"Pi", "Initial_Punctuation"},
    {"Pf", "Final_Punctuation"},
    {"Po", "Other_Punctuation"},
    {"Sm", "Math_Symbol"},
    {"Sc", "Currency_Symbol"},
    {"Sk", "Modifier_Symbol"},
    {"So", "Other_Symbol"},
    {"Zs", "Space_Separator"},
    {"Zl", "Line_Separator"},
    {"Zp", "Paragraph_Separator"},
    {"Cc", "Control"},
    {"Cf", "Format"},
    {"Cs", "Surrogate"},
    {"Co", "Private_Use"},
});
constexpr auto kGroups = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"L", "Letter"},
    {"M", "Mark"},
    {"N", "Number"},
    {"P", "Punctuation"},
    {"S", "Symbol"},
    {"Z", "Separator"},
    {"C", "Other"},
});

using Ranges = std::vector<CodePoints::Range>;

// The characters of each category, read once: no client pays for it.
const std::array<Ranges, kCategories.size()>& RangesOfCategories() {
  static const auto all = [] {
    const WorkBudget::Exempt once_per_process;
    std::array<Ranges, kCategories.size()> by_category;
    for (uint32_t c = 0; c <= kCodePointLast; ++c) {
      Ranges& ranges = by_category[static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)))];
      if (!ranges.empty() && ranges.back().last + 1 == c) {
        ranges.back().last = c;
      } else {
        ranges.push_back({c, c});
      }
    }
    return by_category;
  }();
  return all;
}

const std::vector<std::pair<uint32_t, uint32_t>>& CasePairs() {
  static const auto pairs = [] {
    const WorkBudget::Exempt once_per_process;
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (uint32_t c = 0; c <= 0x1FFFF; ++c) {
      const auto lower = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
      if (lower != c) all.emplace_back(c, lower);
    }
    return all;
  }();
  return pairs;
}

bool Contains(const CodePoints& set, uint32_t c) {
  const auto range = std::ranges::lower_bound(set.ranges(), c, {}, &CodePoints::Range::last);
  return range != set.ranges().end() && range->first <= c;
}

}  // namespace

CodePoints DigitClass() { return {{'0', '9'}}; }
CodePoints WordClass() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePoints SpaceClass() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

std::optional<CodePoints> CategoryClass(std::string_view name) {
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  if (name == "Any") return CodePoints::All();
  if (name == "ASCII") return CodePoints({{0, 0x7F}});
  for (const auto& [group, long_name] : kGroups) {
    if (name == long_name) name = group;
  }
  Ranges ranges;
  bool known = false;
  for (size_t i = 0; i < kCategories.size(); ++i) {
    const auto& [category, long_name] = kCategories[i];
    const bool of_group = name.size() == 1 && category.starts_with(name);
    if (!of_group && name != category && name != long_name) continue;
    known = true;
    const Ranges& more = RangesOfCategories()[i];
    ranges.insert(ranges.end(), more.begin(), more.end());
  }
  if (!known) return std::nullopt;
  return CodePoints(std::move(ranges));
}

CodePoints WithBothCases(const CodePoints& set) {
  CountWork(8 * CasePairs().size());
  Ranges ranges = set.ranges();
  for (const auto& [upper, lower] : CasePairs()) {
    if (Contains(set, upper)) ranges.push_back({lower, lower});
    if (Contains(set, lower)) ranges.push_back({upper, upper});
  }
  return CodePoints(std::move(ranges));
}

}  // namespace quire::runner::constraint
