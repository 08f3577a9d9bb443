#include "runner/constraint/multiples.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runner/constraint/numbers.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr uint32_t kStepUnitsMax = 10'000;
constexpr uint32_t kStepPlacesMax = 9;

}  // namespace

std::optional<DecimalStep> DecimalStepOf(const api::Json& number) {
  if (!number.is_number() || number.get<double>() <= 0) return std::nullopt;
  const std::string text = PlainDecimal(number);
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text;
  if (point < text.size()) digits.erase(point, 1);
  DecimalStep step{.places = static_cast<uint32_t>(digits.size() - point)};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step.units);
  const bool fits = error == std::errc() && step.units <= kStepUnitsMax && step.places <= kStepPlacesMax;
  return fits ? std::optional(step) : std::nullopt;
}

// Nodes: of the integer and of each number of digits behind the point, by the remainder of the digits so far.
ExprRef MultiplesOf(const DecimalStep& step) {
  const uint32_t units = step.units;
  CountWork(uint64_t{16} * units * (step.places + 2));
  enum : uint32_t { kStart, kEnd, kSigned, kZero, kFirst };
  Expr::Graph graph{.nodes = kFirst + units * (2 + step.places), .edges = {}};
  const auto whole = [](uint32_t remainder) { return kFirst + remainder; };
  // After `places` digits behind the point; 0: the point itself.
  const auto behind = [units](uint32_t places, uint32_t remainder) {
    return kFirst + units * (1 + places) + remainder;
  };
  const auto add = [&graph](uint32_t from, uint32_t to, uint8_t digit) {
    graph.edges.push_back({from, to, Byte(digit, digit)});
  };
  const auto end = [&](uint32_t from, uint32_t remainder, uint32_t places) {
    uint64_t rest = remainder;
    for (uint32_t i = places; i < step.places; ++i) rest = rest * 10 % units;
    if (rest == 0) graph.edges.push_back({from, kEnd, nullptr});
  };
  graph.edges.push_back({kStart, kSigned, nullptr});
  graph.edges.push_back({kStart, kSigned, Literal("-")});
  add(kSigned, kZero, '0');
  end(kZero, 0, 0);
  if (step.places > 0) graph.edges.push_back({kZero, behind(0, 0), Literal(".")});
  for (uint32_t digit = 1; digit <= 9; ++digit)
    add(kSigned, whole(digit % units), static_cast<uint8_t>('0' + digit));
  for (uint32_t remainder = 0; remainder < units; ++remainder) {
    end(whole(remainder), remainder, 0);
    if (step.places > 0) graph.edges.push_back({whole(remainder), behind(0, remainder), Literal(".")});
    for (uint32_t digit = 0; digit <= 9; ++digit) {
      const auto byte = static_cast<uint8_t>('0' + digit);
      const uint32_t next = (10 * remainder + digit) % units;
      add(whole(remainder), whole(next), byte);
      for (uint32_t places = 0; places < step.places; ++places)
        add(behind(places, remainder), behind(places + 1, next), byte);
    }
    for (uint32_t places = 1; places <= step.places; ++places)
      end(behind(places, remainder), remainder, places);
    if (step.places > 0) add(behind(step.places, remainder), behind(step.places, remainder), '0');
  }
  return std::make_shared<const Expr>(Expr{std::move(graph)});
}

}  // namespace quire::runner::constraint
