#include "runner/constraint/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/constraint/json_grammar.h"

namespace quire::runner::constraint {
namespace {

constexpr int kBoundIntegerDigits = 18;
constexpr int kExactDigits = 15;         // decimals of this many digits differ as float64
constexpr int kBoundFractionDigits = 6;  // as far as bounds do not ask for more
constexpr int kUnboundedDigits = 9;      // before the point, where no bound says

int64_t PowerOfTen(int exponent) {
  int64_t power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}

ExprRef DecimalDigits(char first, char last) {
  return first > last ? Never() : Byte(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

// Magnitudes between two of the same number of digits; the last `fraction` of them stand behind a point and
// may be left out where they are zero.
class Between {
 public:
  Between(std::string low, std::string high, size_t fraction)
      : low_(std::move(low)), high_(std::move(high)), whole_(low_.size() - fraction) {}

  ExprRef All() const { return From(0, true, true); }

 private:
  // The digits that may follow the first `at` digits, while they equal those of the lower (upper) bound or
  // not.
  ExprRef From(size_t at, bool at_low, bool at_high) const {
    if (at == low_.size()) return Nothing();
    const char low = at_low ? low_[at] : '0';
    const char high = at_high ? high_[at] : '9';
    std::vector<ExprRef> next;
    if (low == high) {
      next.push_back(Sequence({DecimalDigits(low, low), From(at + 1, at_low, at_high)}));
    } else {
      char first = low;
      char last = high;
      if (at_low) {
        next.push_back(Sequence({DecimalDigits(low, low), From(at + 1, true, false)}));
        ++first;
      }
      if (at_high) {
        next.push_back(Sequence({DecimalDigits(high, high), From(at + 1, false, true)}));
        --last;
      }
      if (first <= last) next.push_back(Sequence({DecimalDigits(first, last), From(at + 1, false, false)}));
    }
    ExprRef on = Choice(std::move(next));
    if (at == whole_) on = Sequence({Literal("."), on});
    const bool may_end = at >= whole_ && (!at_low || low_.find_first_not_of('0', at) == std::string::npos);
    return may_end ? Optional(on) : on;
  }

  const std::string low_;
  const std::string high_;
  const size_t whole_;  // digits before the point
};

// [low, high] in units of 10^-fraction.
ExprRef Magnitudes(int64_t low, int64_t high, int fraction) {
  std::vector<ExprRef> lengths;
  for (int digits = 1; digits + fraction <= kBoundIntegerDigits; ++digits) {
    const int64_t least = digits == 1 ? 0 : PowerOfTen(digits - 1 + fraction);
    const int64_t from = std::max(low, least);
    const int64_t to = std::min(high, PowerOfTen(digits + fraction) - 1);
    if (from > to) continue;
    const int width = digits + fraction;
    lengths.push_back(Between(fmt::format("{:0{}}", from, width), fmt::format("{:0{}}", to, width),
                              static_cast<size_t>(fraction))
                          .All());
  }
  return Choice(std::move(lengths));
}

ExprRef Scaled(int64_t low, int64_t high, int fraction) {
  std::vector<ExprRef> signs;
  if (high >= 0) signs.push_back(Magnitudes(std::max<int64_t>(low, 0), high, fraction));
  if (low < 0) {
    signs.push_back(Sequence({Literal("-"), Magnitudes(std::max<int64_t>(-high, 1), -low, fraction)}));
  }
  return Choice(std::move(signs));
}

// A bound as it is written in decimals without exponent.
struct Decimal {
  bool negative = false;
  std::string whole;
  std::string fraction;

  int64_t Scaled(int places) const {
    std::string digits = whole + fraction;
    digits.append(static_cast<size_t>(places) - fraction.size(), '0');
    int64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return negative ? -value : value;
  }
};

Decimal DecimalOf(const NumberBounds::Bound& bound) {
  std::array<char, 1100> text{};
  const auto end = bound.integer ? std::to_chars(text.data(), text.data() + text.size(), *bound.integer)
                                 : std::to_chars(text.data(), text.data() + text.size(), bound.value,
                                                 std::chars_format::fixed);
  std::string_view written(text.data(), static_cast<size_t>(end.ptr - text.data()));
  Decimal decimal;
  if (written.starts_with('-')) {
    decimal.negative = true;
    written.remove_prefix(1);
  }
  const size_t point = std::min(written.find('.'), written.size());
  decimal.whole = written.substr(0, point);
  if (point < written.size()) decimal.fraction = written.substr(point + 1);
  if (decimal.whole == "0") decimal.whole.clear();
  return decimal;
}

// -1, 0, 1; integers exactly.
int Compare(const NumberBounds::Bound& a, const NumberBounds::Bound& b) {
  if (a.integer && b.integer) return *a.integer < *b.integer ? -1 : *a.integer > *b.integer ? 1 : 0;
  return a.value < b.value ? -1 : a.value > b.value ? 1 : 0;
}

}  // namespace

void NumberBounds::Raise(const Bound& bound) {
  if (min) {
    const int order = Compare(bound, *min);
    if (order < 0 || (order == 0 && !bound.exclusive)) return;
  }
  min = bound;
}

void NumberBounds::Lower(const Bound& bound) {
  if (max) {
    const int order = Compare(bound, *max);
    if (order > 0 || (order == 0 && !bound.exclusive)) return;
  }
  max = bound;
}

bool NumberBounds::Contain(const api::Json& number) const {
  Bound bound{.value = number.get<double>()};
  if (number.is_number_unsigned() && number.get<uint64_t>() > INT64_MAX) {
    // Beyond int64: only as a float64.
  } else if (number.is_number_integer()) {
    bound.integer = number.get<int64_t>();
  }
  if (min) {
    const int order = Compare(bound, *min);
    if (order < 0 || (order == 0 && min->exclusive)) return false;
  }
  if (max) {
    const int order = Compare(bound, *max);
    if (order > 0 || (order == 0 && max->exclusive)) return false;
  }
  return true;
}

ExprRef IntegerWithin(const NumberBounds& bounds) {
  const int64_t limit = PowerOfTen(kBoundIntegerDigits) - 1;
  const auto to_integer = [limit](double value) {
    return static_cast<int64_t>(
        std::clamp(value, -static_cast<double>(limit) * 1.1, static_cast<double>(limit) * 1.1));
  };
  int64_t low = -limit;
  int64_t high = limit;
  if (bounds.min) {
    const double value = bounds.min->value;
    int64_t least = bounds.min->integer.value_or(to_integer(std::ceil(value)));
    const bool whole = bounds.min->integer || std::ceil(value) == value;
    if (bounds.min->exclusive && whole && least < INT64_MAX) ++least;
    low = std::max(low, least);
  }
  if (bounds.max) {
    const double value = bounds.max->value;
    int64_t largest = bounds.max->integer.value_or(to_integer(std::floor(value)));
    const bool whole = bounds.max->integer || std::floor(value) == value;
    if (bounds.max->exclusive && whole && largest > INT64_MIN) --largest;
    high = std::min(high, largest);
  }
  return low > high ? Never() : Scaled(low, high, 0);
}

api::Result<ExprRef> NumberWithin(const NumberBounds& bounds) {
  if (!bounds.any()) return AnyNumber();
  int whole = 1;
  int fraction = 0;
  for (const auto& bound : {bounds.min, bounds.max}) {
    if (!bound) continue;
    const Decimal decimal = DecimalOf(*bound);
    whole = std::max(whole, static_cast<int>(decimal.whole.size()));
    fraction = std::max(fraction, static_cast<int>(decimal.fraction.size()));
  }
  if (whole + fraction > kExactDigits) {
    return api::Fail(api::ErrorCode::kUnsupported,
                     fmt::format("number bounds with more than {} digits", kExactDigits));
  }
  if (!bounds.min || !bounds.max)
    whole = std::max(whole, std::min(kUnboundedDigits, kExactDigits - fraction));
  fraction = std::max(fraction, std::min(kBoundFractionDigits, kExactDigits - whole));
  int64_t low = -(PowerOfTen(whole + fraction) - 1);
  int64_t high = -low;
  if (bounds.min) low = DecimalOf(*bounds.min).Scaled(fraction) + (bounds.min->exclusive ? 1 : 0);
  if (bounds.max) high = DecimalOf(*bounds.max).Scaled(fraction) - (bounds.max->exclusive ? 1 : 0);
  return low > high ? Never() : Scaled(low, high, fraction);
}

api::Result<Dfa> DistinctNumberWithin(const NumberBounds& bounds) {
  const ExprRef digit = Byte('0', '9');
  const ExprRef whole = Sequence({Byte('1', '9'), Repeat(digit, 0, kUnboundedDigits - 1)});
  const ExprRef any_whole = Sequence({Byte('1', '9'), Repeat(digit, 0, std::nullopt)});
  const auto plain = [&digit](const ExprRef& before, uint32_t digits) {
    const ExprRef fraction = Sequence({Literal("."), Repeat(digit, 0, digits - 1), Byte('1', '9')});
    const ExprRef minus = Optional(Literal("-"));
    return Choice({Literal("0"), Sequence({minus, before, Optional(fraction)}),
                   Sequence({minus, Literal("0"), fraction})});
  };
  if (!bounds.any()) return BuildDfa(*plain(whole, kBoundFractionDigits));
  const auto within = NumberWithin(bounds);
  if (!within) return std::unexpected(within.error());
  const auto all = BuildDfa(**within);
  if (!all) return std::unexpected(all.error());
  const auto once = BuildDfa(*plain(any_whole, kExactDigits));
  if (!once) return std::unexpected(once.error());
  return Intersect(*all, *once);
}

std::string PlainDecimal(const api::Json& number) {
  if (number.is_number_unsigned()) return std::to_string(number.get<uint64_t>());
  if (number.is_number_integer()) return std::to_string(number.get<int64_t>());
  const Decimal decimal = DecimalOf({.value = number.get<double>()});
  std::string text = (decimal.whole.empty() ? "0" : decimal.whole);
  if (!decimal.fraction.empty()) text += "." + decimal.fraction;
  return decimal.negative && text != "0" ? "-" + text : text;
}

}  // namespace quire::runner::constraint
