// Numbers are written as a model likes; only their value is decided.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

void ExpectJudged(const std::string& schema, const std::vector<std::string>& matches,
                  const std::vector<std::string>& others) {
  const auto grammar = CompileFormat(SchemaFormat(schema));
  ASSERT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message;
  for (const std::string& text : matches)
    EXPECT_EQ(Judge(**grammar, text), Verdict::kMatches) << schema << text;
  for (const std::string& text : others)
    EXPECT_NE(Judge(**grammar, text), Verdict::kMatches) << schema << text;
}

TEST(Numbers, OfEverySpelling) {
  ExpectJudged(
      R"({"type":"number"})",
      {"0",
       "-0",
       "7",
       "-7",
       "10",
       "0.5",
       "9.50",
       "100.00",
       "1.0",
       "0.0",
       "-0.0",
       "1e2",
       "1E5",
       "1e21",
       "1.5e-07",
       "1e+021",
       "1.0E+21",
       "123456789012345678901234567890",
       "3.14159265358979323846264338327950288",
       "9.50000000000000000000",
       "1e299"},
      {"", "00", "01", "-01", "+1", ".5", "1.", "1.e2", "1e", "1e+", "-", "1e300", "--1", "1.5.5", "1e1.5"});
  ExpectJudged(R"({"type":"integer"})", {"0", "-0", "10", "-7", "123456789012345678901234567890"},
               {"1.0", "1e2", "01", "-", "0.0"});
}

TEST(Numbers, AsTheSchemaWritesThemInListsAndConstants) {
  ExpectJudged(R"({"enum":[1.0,2.50,100,1e25,-0.5]})", {"1.0", "2.5", "100", "1e+25", "-0.5"}, {"2", "10"});
  ExpectJudged(R"({"const":9.5})", {"9.5"}, {"9.6", "9"});
}

TEST(Numbers, WithinBoundsOfAnyDigits) {
  ExpectJudged(R"({"type":"number","minimum":-2.5,"maximum":20})",
               {"-2.5", "-2.50", "-0.5", "0", "-0", "0.0", "1.0", "20", "20.000", "19.999999999999999999999",
                "1e1", "2E+01", "1.5e-20", "-1e-3"},
               {"20.1", "-2.6", "20.0000000000000000001", "-2.50001", "21", "3e1", "1e2", "-1e1", "200e-1"});
  ExpectJudged(R"({"type":"number","exclusiveMinimum":0})",
               {"0.01", "1e-5", "5e-10", "0.000001", "1e20", "12345678901234567890"},
               {"0", "0.0", "-1", "-0", "0e5"});
  ExpectJudged(R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
               {"0.5", "0.99999999", "0.10", "0.5e-3"}, {"0", "1", "1.0", "0.0", "2e-1"});
  ExpectJudged(R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "1.00", "1e-5", "1e-10", "0.50"},
               {"1.01", "1e1", "10e-1"});
  ExpectJudged(R"({"type":"number","minimum":0.12345678901234567})", {"0.12345678901234567", "0.2", "7"},
               {"0.1234567890123456"});
  ExpectJudged(R"({"type":"integer","minimum":-2})", {"-2", "-0", "0", "10", "99999999999999999999"},
               {"1.0", "1e1", "-3"});
  ExpectJudged(R"({"type":"integer","exclusiveMinimum":9007199254740992})", {"9007199254740993"},
               {"9007199254740992"});
  ExpectJudged(R"({"type":"integer","minimum":0.5,"maximum":1.5})", {"1"}, {"0", "2"});
  ExpectJudged(R"({"type":"number","minimum":1e30})", {"2000000000000000000000000000000"}, {"1e29", "5"});
}

TEST(Numbers, NoDigitLeavesAnExponentAsTheOnlyWayOn) {
  const std::string stars = R"({"type":"number","minimum":1,"maximum":5})";
  for (const std::string text : {"7", "10", "0", "-", "5.1", "5e1", "6e-1"})
    EXPECT_EQ(Judge(stars, text), Verdict::kImpossible) << text;
  EXPECT_EQ(Judge(R"({"type":"integer","minimum":0})", "-"), Verdict::kImpossible);
}

// A model that means 0 where 0 is excluded does not go on with zeros until its answer is cut.
TEST(Numbers, UndecidedDigitsEnd) {
  const std::string positive = R"({"type":"number","exclusiveMinimum":0})";
  EXPECT_EQ(Judge(positive, "0.000000"), Verdict::kBeginning);
  EXPECT_EQ(Judge(positive, "0.0000000"), Verdict::kImpossible);
  const std::string more = R"({"type":"number","exclusiveMinimum":1.25})";
  EXPECT_EQ(Judge(more, "1.25000000"), Verdict::kBeginning);
  EXPECT_EQ(Judge(more, "1.250000000"), Verdict::kImpossible);
  EXPECT_EQ(Judge(more, "1.250000001"), Verdict::kMatches);
  EXPECT_EQ(Judge(R"({"type":"number","minimum":0})", "0." + std::string(60, '0')), Verdict::kMatches);
}

// A number between -10^4 and 10^4 in some spelling, and its value in units of 10^-4.
std::pair<std::string, int64_t> RandomNumber(std::mt19937& random) {
  constexpr int64_t kScale = 10'000;
  const int64_t value = static_cast<int64_t>(random() % (2 * 300 * kScale)) - 300 * kScale;
  const int64_t rounded = random() % 3 == 0   ? value / kScale * kScale
                          : random() % 2 == 0 ? value / 100 * 100
                                              : value;
  std::string text = (rounded < 0 ? "-" : "") + std::to_string(std::abs(rounded) / kScale);
  std::string fraction = std::to_string(kScale + std::abs(rounded) % kScale).substr(1);
  if (random() % 2 == 0) {
    while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  }
  fraction += std::string(fraction.empty() ? 0 : random() % 3, '0');
  return {fraction.empty() ? text : text + "." + fraction, rounded};
}

TEST(Numbers, WithinRandomBounds) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    auto [low, low_value] = RandomNumber(random);
    auto [high, high_value] = RandomNumber(random);
    if (low_value > high_value) std::swap(low, high), std::swap(low_value, high_value);
    const bool above = random() % 2 == 0, below = random() % 2 == 0;
    const std::string schema = std::string(R"({"type":"number",")") +
                               (above ? "exclusiveMinimum" : "minimum") + "\":" + low + ",\"" +
                               (below ? "exclusiveMaximum" : "maximum") + "\":" + high + "}";
    const auto grammar = CompileFormat(SchemaFormat(schema));
    if (!grammar) {
      EXPECT_EQ(low_value, high_value) << schema;
      continue;
    }
    for (int i = 0; i < 200; ++i) {
      const auto [text, value] = i == 0   ? std::pair(low, low_value)
                                 : i == 1 ? std::pair(high, high_value)
                                          : RandomNumber(random);
      const bool within = (above ? value > low_value : value >= low_value) &&
                          (below ? value < high_value : value <= high_value);
      EXPECT_EQ(Judge(**grammar, text) == Verdict::kMatches, within) << schema << ' ' << text;
      if (!within || value == 0) continue;
      for (const int exponent : {-3, -1, 1, 2}) {
        const double scaled = static_cast<double>(value) * std::pow(10.0, exponent);
        const auto near = [scaled](int64_t bound) {
          return std::abs(scaled - static_cast<double>(bound)) < 1e-6;
        };
        if (near(low_value) || near(high_value)) continue;
        const bool fits = scaled > static_cast<double>(low_value) && scaled < static_cast<double>(high_value);
        const std::string written = text + "e" + std::to_string(exponent);
        EXPECT_EQ(Judge(**grammar, written) == Verdict::kMatches, fits) << schema << ' ' << written;
      }
    }
  }
}

TEST(Numbers, IntegersWithinBoundsExactly) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const int low = static_cast<int>(random() % 400) - 250;
    const int high = low + static_cast<int>(random() % 200);
    const std::string schema = R"({"type":"integer","minimum":)" + std::to_string(low) + R"(,"maximum":)" +
                               std::to_string(high) + "}";
    const auto grammar = CompileFormat(SchemaFormat(schema));
    ASSERT_TRUE(grammar.has_value());
    for (int n = -300; n <= 300; ++n) {
      EXPECT_EQ(Judge(**grammar, std::to_string(n)) == Verdict::kMatches, n >= low && n <= high)
          << schema << n;
    }
  }
}

}  // namespace
}  // namespace quire::runner::constraint
