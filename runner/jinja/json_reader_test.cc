// JSON of a request as values: what it becomes, and that its cost is bounded.
#include "runner/jinja/json_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

#include "runner/jinja/template.h"
#include "runner/work/work_budget.h"

namespace quire::runner::jinja {
namespace {

std::string Show(const Value& value) {
  return Template::Parse("{{ v }}")->Render(Value::MakeDict({{"v", value}})).value();
}

std::string Nested(int levels) {
  return std::string(static_cast<size_t>(levels), '[') + std::string(static_cast<size_t>(levels), ']');
}

std::string ObjectOf(int keys) {
  std::string text;
  for (int i = 0; i < keys; ++i) text += fmt::format(R"({}"k{}":{})", i == 0 ? "{" : ",", i, i);
  return text + "}";
}

TEST(JinjaJson, ReadsEveryKind) {
  const auto value = JsonReader().Read(
      R"( {"z": 1, "a": [true, null, -2, 1.5, 18446744073709551615, "é", [], [[3]]], "o": {}} )");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(Show(*value),
            "{'z': 1, 'a': [True, None, -2, 1.5, 1.8446744073709552e+19, 'é', [], [[3]]], 'o': {}}");
  EXPECT_EQ(Show(*JsonReader().Read(R"("x")")), "x");
}

TEST(JinjaJson, OfEqualKeysTheLastValueHasTheFirstPlace) {
  EXPECT_EQ(Show(*JsonReader().Read(R"({"b":1,"a":{"x":1,"x":[2]},"b":3})")), "{'b': 3, 'a': {'x': [2]}}");
}

TEST(JinjaJson, StringsAndKeysAreOfTheRequest) {
  const auto value = JsonReader(Trust::kRequest).Read(R"({"k":"v"})");
  const auto& [key, member] = value->as_dict().entries().front();
  EXPECT_FALSE(key.as_text().untrusted().empty());
  EXPECT_FALSE(member.as_text().untrusted().empty());
}

TEST(JinjaJson, RefusesWhatIsNoJson) {
  for (const std::string text : {"", "{", "[1,]", "nul", "1 2", "1e999", "\"a\xE2\x82\"", "{\"\xFF\":1}",
                                 "\"\\ud800\"", "{1:2}", "[1}"}) {
    const auto value = JsonReader().Read(text);
    ASSERT_FALSE(value.has_value()) << text;
    EXPECT_EQ(value.error().code, api::ErrorCode::kInvalidArgument) << text;
    EXPECT_EQ(value.error().message, "is not JSON") << text;
  }
  EXPECT_FALSE(JsonReader().Read(std::string("1\0", 2)).has_value());
}

TEST(JinjaJson, RefusesDeepNesting) {
  EXPECT_TRUE(JsonReader().Read(Nested(400)).has_value());
  const auto value = JsonReader().Read(Nested(401));
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code, api::ErrorCode::kInvalidArgument);
  EXPECT_EQ(value.error().message, "is nested deeper than 400 levels");
}

TEST(JinjaJson, BoundsTheValuesOfAllTextsTogether) {
  JsonReader reader(Trust::kRequest, 8);
  EXPECT_TRUE(reader.Read(R"({"a":1,"b":2})").has_value());
  const auto value = reader.Read("[1,2,3]");
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().code, api::ErrorCode::kTooLarge);
}

// Comparing each key with all before it would take 8e10 comparisons.
TEST(JinjaJson, AnObjectOfManyKeysIsReadInItsOrder) {
  constexpr int kKeys = 400'000;
  const std::string text = ObjectOf(kKeys);
  const WorkLimit limit(uint64_t{kKeys} * 40);
  const auto value = JsonReader().Read(text);
  ASSERT_TRUE(value.has_value());
  const auto& entries = value->as_dict().entries();
  ASSERT_EQ(entries.size(), static_cast<size_t>(kKeys));
  for (int64_t i = 0; i < kKeys; i += 999) {
    EXPECT_EQ(entries[static_cast<size_t>(i)].second.as_int(), i);
    EXPECT_EQ(value->as_dict().Find(fmt::format("k{}", i))->as_int(), i);
  }
}

TEST(JinjaJson, EveryValueAndTheTextCountAsWork) {
  for (const std::string& text : {ObjectOf(10'000), "[" + std::string(100'000, ' ') + "]"}) {
    const WorkLimit limit(10'000);
    EXPECT_THROW(JsonReader().Read(text), WorkStopped);
  }
}

TEST(JinjaJson, ACanceledRequestStopsReading) {
  const std::string text = ObjectOf(10'000);
  const std::atomic<bool> canceled = true;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  EXPECT_THROW(JsonReader().Read(text), WorkStopped);
}

}  // namespace
}  // namespace quire::runner::jinja
