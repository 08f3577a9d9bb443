#include "runner/constraint/code_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "api/base/utf8.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800;
constexpr uint32_t kSurrogateLast = 0xDFFF;
constexpr uint64_t kUnitsPerRange = 4;  // of sorting

ExprRef Digits(std::string_view ranges) {  // pairs of first and last
  Expr::Bytes bytes;
  for (size_t i = 0; i + 1 < ranges.size(); i += 2) {
    bytes.push_back({static_cast<uint8_t>(ranges[i]), static_cast<uint8_t>(ranges[i + 1])});
  }
  return Bytes(std::move(bytes));
}

// Sequences of byte ranges for a range of characters: it is halved until the characters of a part differ only
// in whole last bytes.
void AddUtf8(uint32_t first, uint32_t last, std::vector<ExprRef>& out) {
  for (const uint32_t length_max : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (first <= length_max && length_max < last) {
      AddUtf8(first, length_max, out);
      return AddUtf8(length_max + 1, last, out);
    }
  }
  if (last >= 0x80) {
    for (uint32_t bits = 6; bits <= 18; bits += 6) {
      const uint32_t mask = (1U << bits) - 1;
      if ((first & ~mask) == (last & ~mask)) continue;
      if ((first & mask) != 0) {
        AddUtf8(first, first | mask, out);
        return AddUtf8((first | mask) + 1, last, out);
      }
      if ((last & mask) != mask) {
        AddUtf8(first, (last & ~mask) - 1, out);
        return AddUtf8(last & ~mask, last, out);
      }
    }
  }
  std::string from;
  std::string to;
  api::AppendUtf8(from, first);
  api::AppendUtf8(to, last);
  std::vector<ExprRef> sequence;
  for (size_t i = 0; i < from.size(); ++i) {
    sequence.push_back(Byte(static_cast<uint8_t>(from[i]), static_cast<uint8_t>(to[i])));
  }
  out.push_back(Sequence(std::move(sequence)));
}

// \u escapes of one character: any unit but a surrogate, or a pair of them.
ExprRef HexEscape() {
  const ExprRef hex = Digits("09afAF");
  const ExprRef d = Digits("ddDD");
  const ExprRef unit =
      Choice({Sequence({Digits("09acefACEF"), hex, hex, hex}), Sequence({d, Digits("07"), hex, hex})});
  const ExprRef pair = Sequence({d, Digits("89abAB"), hex, hex, Literal("\\u"), d, Digits("cfCF"), hex, hex});
  return Sequence({Literal("u"), Choice({unit, pair})});
}

}  // namespace

CodePoints::CodePoints(std::vector<Range> ranges) {
  CountWork(1 + ranges.size() * kUnitsPerRange);
  std::ranges::sort(ranges, {}, &Range::first);
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePoints CodePoints::All() { return {{0, kSurrogateFirst - 1}, {kSurrogateLast + 1, kCodePointLast}}; }

CodePoints CodePoints::Complement() const { return All().Without(*this); }

CodePoints CodePoints::Without(const CodePoints& other) const {
  CodePoints left;
  for (Range range : ranges_) {
    for (const Range& hole : other.ranges_) {
      if (hole.last < range.first || hole.first > range.last) continue;
      if (hole.first > range.first) left.ranges_.push_back({range.first, hole.first - 1});
      range.first = hole.last + 1;
      if (range.first > range.last) break;
    }
    if (range.first <= range.last) left.ranges_.push_back(range);
  }
  return left;
}

ExprRef Utf8(const CodePoints& set) {
  std::vector<ExprRef> sequences;
  // Surrogates cannot be written.
  const CodePoints writable = set.Without({{kSurrogateFirst, kSurrogateLast}});
  for (const auto& range : writable.ranges()) {
    AddUtf8(range.first, range.last, sequences);
  }
  return Choice(std::move(sequences));
}

ExprRef JsonCharacter(const CodePoints& set) {
  constexpr std::array<std::pair<uint32_t, std::string_view>, 7> kShort = {{{'\b', "\\b"},
                                                                            {'\f', "\\f"},
                                                                            {'\n', "\\n"},
                                                                            {'\r', "\\r"},
                                                                            {'\t', "\\t"},
                                                                            {'"', "\\\""},
                                                                            {'\\', "\\\\"}}};
  const CodePoints escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  std::vector<ExprRef> ways = {Utf8(set.Without(escaped))};
  for (const auto& range : set.ranges()) {
    for (uint32_t c = range.first; c <= std::min<uint32_t>(range.last, '\\'); ++c) {
      if (c > 0x1F && c != '"' && c != '\\') continue;
      const auto* found = std::ranges::find(kShort, c, &std::pair<uint32_t, std::string_view>::first);
      ways.push_back(
          Literal(found != kShort.end() ? std::string(found->second) : fmt::format("\\u{:04x}", c)));
    }
  }
  return Choice(std::move(ways));
}

ExprRef AnyJsonCharacter() {
  const CodePoints plain = CodePoints::All().Without({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const ExprRef simple = Digits("\"\"\\\\//bbffnnrrtt");
  return Choice({Utf8(plain), Sequence({Literal("\\"), Choice({simple, HexEscape()})})});
}

}  // namespace quire::runner::constraint
