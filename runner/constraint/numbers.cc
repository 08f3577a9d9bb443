#include "runner/constraint/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <compare>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr int kExactDigits = 15;      // decimals of this many digits differ as float64
constexpr int kDistinctFraction = 6;  // of distinct numbers, as far as bounds do not ask for more
constexpr int kDistinctWhole = 9;     // before the point, where no bound says
constexpr uint32_t kDistinctIntegerDigits = 18;
constexpr int kExponentMax = 299;
constexpr int kUndecidedDigits =
    6;  // of a fraction that is outside the bounds, beyond those that the bounds have

// A number without its sign: digits[0].digits[1]... * 10^exponent, without zeros at either end.
struct Magnitude {
  std::string digits;
  int exponent = 0;
  bool exclusive = false;  // of a bound
};

// A bound as it is written in decimals without exponent.
struct Decimal {
  bool negative = false;
  std::string whole;  // empty: 0
  std::string fraction;

  bool zero() const { return whole.empty() && fraction.find_first_not_of('0') == std::string::npos; }
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

// REQUIRES: not zero.
Magnitude MagnitudeOf(const Decimal& decimal, bool exclusive) {
  const std::string all = decimal.whole + decimal.fraction;
  const size_t first = all.find_first_not_of('0');
  return {.digits = all.substr(first, all.find_last_not_of('0') - first + 1),
          .exponent = static_cast<int>(decimal.whole.size()) - 1 - static_cast<int>(first),
          .exclusive = exclusive};
}

// The magnitudes of one sign that are within the bounds.
struct Range {
  bool zero = true;     // 0 is
  bool nonzero = true;  // others are
  std::optional<Magnitude> low, high;

  void LimitBelow(const Decimal& bound, bool exclusive) {
    if (bound.zero()) {
      zero = zero && !exclusive;
    } else if (!bound.negative) {
      zero = false;
      low = MagnitudeOf(bound, exclusive);
    }
  }
  void LimitAbove(const Decimal& bound, bool exclusive) {
    if (!bound.zero() && !bound.negative) {
      high = MagnitudeOf(bound, exclusive);
      return;
    }
    zero = zero && bound.zero() && !exclusive;
    nonzero = false;
  }
};

Range RangeOf(const NumberBounds& bounds, bool negative) {
  Range range;
  const auto& below = negative ? bounds.max : bounds.min;
  const auto& above = negative ? bounds.min : bounds.max;
  const auto signed_decimal = [negative](const NumberBounds::Bound& bound) {
    Decimal decimal = DecimalOf(bound);
    decimal.negative = decimal.negative != negative;
    return decimal;
  };
  if (below) range.LimitBelow(signed_decimal(*below), below->exclusive);
  if (above) range.LimitAbove(signed_decimal(*above), above->exclusive);
  return range;
}

// How the digits so far compare with those of a bound: the number that are equal, or one of these.
constexpr int kLess = -1, kGreater = -2;

int Compared(const std::optional<Magnitude>& bound, int so_far, char digit) {
  if (!bound || so_far < 0) return so_far;
  const auto at = static_cast<size_t>(so_far);
  const char other = at < bound->digits.size() ? bound->digits[at] : '0';
  if (digit != other) return digit < other ? kLess : kGreater;
  return at < bound->digits.size() ? so_far + 1 : so_far;
}

// The sign of d[0].d[1]... * 10^exponent minus the bound, where `so_far` compares the digits d.
int Difference(const Magnitude& bound, int exponent, int so_far) {
  if (exponent != bound.exponent) return exponent < bound.exponent ? -1 : 1;
  if (so_far < 0) return so_far == kLess ? -1 : 1;
  return static_cast<size_t>(so_far) < bound.digits.size() ? -1 : 0;
}

// Builds the automaton of numbers of which each state is what the text so far says about the bounds.
class NumberAutomaton {
 public:
  NumberAutomaton(const NumberBounds& bounds, NumberKind kind)
      : kind_(kind), ranges_{RangeOf(bounds, false), RangeOf(bounds, true)} {
    for (const Range& range : ranges_) {
      for (const auto& bound : {range.low, range.high}) {
        if (!bound) continue;
        const int fraction = static_cast<int>(bound->digits.size()) - 1 - bound->exponent;
        undecided_max_ = std::max(undecided_max_, kUndecidedDigits + fraction);
        // Beyond these an exponent more changes nothing but which exponents may be written, of which some are
        // then left out.
        exponent_max_ = std::max(exponent_max_, bound->exponent + kExponentMargin);
        exponent_min_ = std::min(exponent_min_, bound->exponent - kExponentMargin);
      }
    }
  }

  ExprRef Build() && {
    Find({});
    for (uint32_t i = 0; i < states_.size(); ++i) Expand(i);
    return matches_ ? std::make_shared<const Expr>(Expr{std::move(graph_)}) : Never();
  }

 private:
  static constexpr int kExponentMargin = 3;
  enum class Phase : uint8_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction, kE, kSign, kExponent };
  struct State {
    Phase phase = Phase::kStart;
    bool negative = false;
    bool nonzero = false;   // a digit other than 0 was read
    int exponent = 0;       // of the first such digit; before it: of the digit before the next
    int low = 0, high = 0;  // Compared()
    int undecided = 0;      // digits of the fraction since the number was within its bounds
    // In an exponent:
    int limit = 0;        // its largest magnitude; behind the E, where it has no minus
    int minus_limit = 0;  // behind the E: where it has one
    int value = 0;        // its magnitude so far, as far as that decides which digits may follow
    int digits = 0;
    auto operator<=>(const State&) const = default;
  };

  const Range& RangeOfSign(const State& at) const { return ranges_[at.negative ? 1 : 0]; }

  bool IsWithin(const State& at) const {
    const Range& range = RangeOfSign(at);
    if (!at.nonzero) return range.zero;
    if (!range.nonzero) return false;
    if (range.low) {
      const int difference = Difference(*range.low, at.exponent, at.low);
      if (difference < 0 || (difference == 0 && range.low->exclusive)) return false;
    }
    if (range.high) {
      const int difference = Difference(*range.high, at.exponent, at.high);
      if (difference > 0 || (difference == 0 && range.high->exclusive)) return false;
    }
    return true;
  }
  bool IsComplete(const State& at) const {
    using enum Phase;
    if (at.phase == kExponent) return true;
    return (at.phase == kZero || at.phase == kWhole || at.phase == kFraction) && IsWithin(at);
  }

  void AddSignificant(State& at, char digit) const {
    const Range& range = RangeOfSign(at);
    at.low = Compared(range.low, at.low, digit);
    at.high = Compared(range.high, at.high, digit);
  }

  std::optional<State> AfterDigit(State at, char digit) const {
    using enum Phase;
    switch (at.phase) {
      case kStart:
      case kMinus:
        at.phase = digit == '0' ? kZero : kWhole;
        if (digit == '0') return at;
        at.nonzero = true;
        break;
      case kWhole:
        at.exponent = std::min(at.exponent + 1, exponent_max_);
        break;
      case kPoint:
      case kFraction:
        at.phase = kFraction;
        if (!at.nonzero) {
          at.nonzero = digit != '0';
          at.exponent = std::max(at.exponent - 1, exponent_min_);
        }
        break;
      case kE:
      case kSign:
      case kExponent:
        return AfterExponentDigit(at, digit - '0');
      default:
        return std::nullopt;
    }
    if (at.nonzero) AddSignificant(at, digit);
    if (at.phase != kFraction) return at;
    at.undecided = IsWithin(at) ? 0 : at.undecided + 1;
    return at.undecided > undecided_max_ ? std::nullopt : std::optional(at);
  }

  // Up to three digits. Where all exponents may be written it only counts whether a third digit still fits.
  std::optional<State> AfterExponentDigit(State at, int digit) const {
    constexpr int kDigitsMax = 3;
    const bool any = at.limit == kExponentMax;
    if (++at.digits > kDigitsMax) return std::nullopt;
    if (any) {
      if (at.digits == 1) at.value = digit <= kExponentMax / 100 ? 0 : 1;
      if (at.digits == kDigitsMax && at.value != 0) return std::nullopt;
    } else {
      at.value = 10 * at.value + digit;
      if (at.value > at.limit) return std::nullopt;
    }
    at.phase = Phase::kExponent;
    at.minus_limit = 0;
    return at;
  }

  // The largest magnitude of an exponent of this sign. REQUIRES: within bounds without one.
  int ExponentMax(const State& at, bool negative) const {
    const Range& range = RangeOfSign(at);
    const auto& bound = negative ? range.low : range.high;
    if (!bound) return kExponentMax;
    const int difference = Difference(*bound, bound->exponent, negative ? at.low : at.high);
    const bool fits = difference == 0 ? !bound->exclusive : (difference > 0) == negative;
    const int distance = negative ? at.exponent - bound->exponent : bound->exponent - at.exponent;
    return std::clamp(distance - (fits ? 0 : 1), 0, kExponentMax - 1);
  }

  std::optional<State> AfterSign(State at, bool negative) const {
    if (at.phase == Phase::kStart && negative) {
      // A sign that leaves only a zero is none, unless that is all that there is.
      if (!ranges_[1].nonzero && (ranges_[0].nonzero || !ranges_[1].zero)) return std::nullopt;
      at.phase = Phase::kMinus;
      at.negative = true;
      return at;
    }
    if (at.phase != Phase::kE) return std::nullopt;
    if (negative) at.limit = at.minus_limit;
    at.minus_limit = 0;
    at.phase = Phase::kSign;
    return at;
  }

  std::optional<State> AfterPoint(State at) const {
    if (kind_ == NumberKind::kInteger || (at.phase != Phase::kZero && at.phase != Phase::kWhole)) return {};
    at.phase = Phase::kPoint;
    return at;
  }

  std::optional<State> AfterE(State at) const {
    if (kind_ == NumberKind::kInteger || !at.nonzero || !IsComplete(at) || at.phase == Phase::kExponent)
      return {};
    return State{.phase = Phase::kE, .limit = ExponentMax(at, false), .minus_limit = ExponentMax(at, true)};
  }

  uint32_t Find(const State& state) {
    const auto [found, added] = nodes_.try_emplace(state, 0);
    if (!added) return found->second;
    CountWork(16);
    found->second = states_.empty() ? 0 : graph_.nodes++;
    states_.push_back(&found->first);
    if (!IsComplete(state)) return found->second;
    matches_ = true;
    graph_.edges.push_back({found->second, 1, nullptr});
    return found->second;
  }

  void AddEdge(uint32_t from, Expr::Bytes bytes, const std::optional<State>& to) {
    if (to) graph_.edges.push_back({from, Find(*to), Bytes(std::move(bytes))});
  }

  void Expand(uint32_t i) {
    const State at = *states_[i];
    const uint32_t from = nodes_.at(at);
    AddEdge(from, {{'-', '-'}}, AfterSign(at, true));
    AddEdge(from, {{'+', '+'}}, at.phase == Phase::kE ? AfterSign(at, false) : std::nullopt);
    AddEdge(from, {{'.', '.'}}, AfterPoint(at));
    AddEdge(from, {{'E', 'E'}, {'e', 'e'}}, AfterE(at));
    std::optional<State> last;
    uint8_t first = '0';
    for (uint8_t digit = '0'; digit <= '9' + 1; ++digit) {
      const auto next = digit > '9' ? std::nullopt : AfterDigit(at, static_cast<char>(digit));
      if (digit > '0' && (next != last || digit > '9'))
        AddEdge(from, {{std::exchange(first, digit), static_cast<uint8_t>(digit - 1)}}, last);
      last = next;
    }
  }

  const NumberKind kind_;
  const std::array<Range, 2> ranges_;  // of numbers from 0 on; of those with a minus
  int undecided_max_ = kUndecidedDigits;
  int exponent_max_ = 0, exponent_min_ = 0;
  std::map<State, uint32_t> nodes_;
  std::vector<const State*> states_;
  Expr::Graph graph_;
  bool matches_ = false;  // something
};

// -1, 0, 1; integers exactly.
int Compare(const NumberBounds::Bound& a, const NumberBounds::Bound& b) {
  if (a.integer && b.integer) return *a.integer < *b.integer ? -1 : *a.integer > *b.integer ? 1 : 0;
  return a.value < b.value ? -1 : a.value > b.value ? 1 : 0;
}

}  // namespace

NumberBounds::Bound NumberBounds::BoundOf(const api::Json& number) {
  Bound bound{.value = number.get<double>()};
  if (number.is_number_unsigned() && number.get<uint64_t>() > INT64_MAX) {
    // Beyond int64: only as a float64.
  } else if (number.is_number_integer()) {
    bound.integer = number.get<int64_t>();
  }
  return bound;
}

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
  const Bound bound = BoundOf(number);
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

ExprRef NumberWithin(const NumberBounds& bounds, NumberKind kind) {
  return NumberAutomaton(bounds, kind).Build();
}

api::Result<Dfa> DistinctNumberWithin(const NumberBounds& bounds, NumberKind kind) {
  const ExprRef digit = Byte('0', '9');
  const ExprRef minus = Optional(Literal("-"));
  if (kind == NumberKind::kInteger) {
    const auto within = BuildDfa(*NumberWithin(bounds, kind));
    if (!within) return std::unexpected(within.error());
    const auto once = BuildDfa(*Choice(
        {Literal("0"), Sequence({minus, Byte('1', '9'), Repeat(digit, 0, kDistinctIntegerDigits - 1)})}));
    if (!once) return std::unexpected(once.error());
    return Intersect(*within, *once);
  }
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
  if (!bounds.min || !bounds.max) whole = std::max(whole, std::min(kDistinctWhole, kExactDigits - fraction));
  fraction = std::max(fraction, std::min(kDistinctFraction, kExactDigits - whole));
  const ExprRef before = Sequence({Byte('1', '9'), Repeat(digit, 0, static_cast<uint32_t>(whole) - 1)});
  const ExprRef behind =
      fraction == 0
          ? Never()
          : Sequence({Literal("."), Repeat(digit, 0, static_cast<uint32_t>(fraction) - 1), Byte('1', '9')});
  const auto once = BuildDfa(*Choice(
      {Literal("0"), Sequence({minus, before, Optional(behind)}), Sequence({minus, Literal("0"), behind})}));
  if (!once || !bounds.any()) return once;
  const auto within = BuildDfa(*NumberWithin(bounds, NumberKind::kAny));
  if (!within) return std::unexpected(within.error());
  return Intersect(*within, *once);
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
