#include "api/base/duration.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "api/base/ascii.h"
#include "api/base/parse_integer.h"

namespace quire::api {
namespace {

struct Unit {
  std::string_view name;
  int64_t ns;
};

// Longer names before their prefixes. Both letters mu that Unicode has.
constexpr std::array<Unit, 8> kUnits = {{{"ns", 1},
                                         {"us", 1'000},
                                         {"\xC2\xB5s", 1'000},
                                         {"\xCE\xBCs", 1'000},
                                         {"ms", 1'000'000},
                                         {"s", 1'000'000'000},
                                         {"m", 60'000'000'000},
                                         {"h", 3'600'000'000'000}}};

// One term such as "1.5h", consumed from the front of `text`; nullopt when there is none or it does not fit.
std::optional<int64_t> ConsumeTerm(std::string_view& text) {
  int64_t whole = 0;
  size_t digits = 0;
  while (digits < text.size() && IsAsciiDigit(text[digits])) {
    if (__builtin_mul_overflow(whole, int64_t{10}, &whole) ||
        __builtin_add_overflow(whole, int64_t{text[digits] - '0'}, &whole)) {
      return std::nullopt;
    }
    ++digits;
  }
  text.remove_prefix(digits);
  double fraction = 0;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    double place = 0.1;
    while (!text.empty() && IsAsciiDigit(text.front())) {
      fraction += place * (text.front() - '0');
      place /= 10;
      ++digits;
      text.remove_prefix(1);
    }
  }
  if (digits == 0) return std::nullopt;
  for (const Unit& unit : kUnits) {
    if (!text.starts_with(unit.name)) continue;
    text.remove_prefix(unit.name.size());
    int64_t ns = 0;
    const auto part = int64_t{std::llround(fraction * static_cast<double>(unit.ns))};
    if (__builtin_mul_overflow(whole, unit.ns, &ns) || __builtin_add_overflow(ns, part, &ns))
      return std::nullopt;
    return ns;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::chrono::nanoseconds> ParseGoDuration(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == "0") return std::chrono::nanoseconds(0);
  if (text.empty()) return std::nullopt;
  int64_t total = 0;
  while (!text.empty()) {
    const auto term = ConsumeTerm(text);
    if (!term || __builtin_add_overflow(total, *term, &total)) return std::nullopt;
  }
  return std::chrono::nanoseconds(negative ? -total : total);
}

std::optional<std::chrono::nanoseconds> ParseDurationOrSeconds(std::string_view text) {
  const auto seconds = ParseInteger<int64_t>(text);
  if (!seconds) return ParseGoDuration(text);
  int64_t ns = 0;
  if (__builtin_mul_overflow(*seconds, int64_t{1'000'000'000}, &ns)) return std::nullopt;
  return std::chrono::nanoseconds(ns);
}

std::optional<bool> ParseGoBool(std::string_view text) {
  for (const std::string_view yes : {"1", "t", "T", "TRUE", "true", "True"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "f", "F", "FALSE", "false", "False"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

}  // namespace quire::api
