// Formats that a client makes expensive: each compiles, or is refused, within the work of one format.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "runner/constraint/output_format.h"
#include "runner/constraint/testing/byte_matching.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

using testing::HasSubstr;

std::string Repeated(int count, std::string_view separator, auto text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += fmt::format("{}{}", i == 0 ? "" : separator, text(i));
  return all;
}

class ExpensiveFormat : public testing::Test {
 protected:
  // Empty if it compiles.
  std::string ErrorOf(const std::string& schema) {
    const auto compiled = cache_.Get(SchemaFormat(schema));
    return compiled ? "" : compiled.error().message;
  }

  const TestVocabulary vocabulary_;
  ConstraintCache cache_{[this] { return vocabulary_.Index(); }, size_t{64} << 20};
};

// 4^30 paths lead to the last definition.
TEST_F(ExpensiveFormat, AllOfOverReferencesIsReadOncePerSchema) {
  const std::string defs = Repeated(30, ",", [](int i) {
    const std::string refs =
        Repeated(4, ",", [i](int) { return fmt::format(R"({{"$ref":"#/$defs/d{}"}})", i + 1); });
    return fmt::format(R"("d{}":{{"allOf":[{}]}})", i, refs);
  });
  EXPECT_EQ(ErrorOf(R"({"$defs":{)" + defs + R"(,"d30":{"type":"integer"}},"$ref":"#/$defs/d0"})"), "");
}

TEST_F(ExpensiveFormat, NamesAreCheckedWithOneAutomaton) {
  const std::string properties =
      Repeated(300, ",", [](int i) { return fmt::format(R"("property{}":{{"type":"null"}})", i); });
  EXPECT_EQ(
      ErrorOf(R"({"type":"object","propertyNames":{"pattern":"^[a-z]{1,40}[0-9]{1,40}$"},"properties":{)" +
              properties + "}}"),
      "");
}

TEST_F(ExpensiveFormat, ManyPropertiesAreRefused) {
  const std::string names = Repeated(40'000, ",", [](int i) { return fmt::format(R"("p{}")", i); });
  const std::string properties = Repeated(40'000, ",", [](int i) { return fmt::format(R"("p{}":true)", i); });
  EXPECT_THAT(ErrorOf(R"({"type":"object","required":[)" + names + R"(],"properties":{)" + properties + "}}"),
              HasSubstr("too"));
}

TEST_F(ExpensiveFormat, LongListsOfValuesAreMatchedQuickly) {
  const std::string values = Repeated(20'000, ",", [](int i) { return fmt::format("{}", i); });
  EXPECT_EQ(ErrorOf(R"({"allOf":[{"enum":[)" + values + R"(]},{"enum":[)" + values + "]}]}"), "");
}

TEST_F(ExpensiveFormat, PatternsAreBoundedTogether) {
  const std::string properties = Repeated(200, ",", [](int i) {
    return fmt::format(R"("p{}":{{"type":"string","pattern":"(a|b)*a(a|b){{11}}c{}"}})", i, i);
  });
  EXPECT_THAT(ErrorOf(R"({"type":"object","properties":{)" + properties + "}}"),
              HasSubstr("the format is too large"));
}

TEST_F(ExpensiveFormat, RepetitionsCountBeforeTheyAreBuilt) {
  const std::string pattern = Repeated(2000, "", [](int) { return "a{9999}"; });
  EXPECT_THAT(ErrorOf(R"({"type":"string","pattern":")" + pattern + R"("})"),
              HasSubstr("the format is too large"));
  const std::string objects = Repeated(2000, ",", [](int i) {
    return fmt::format(R"("p{}":{{"type":"object","properties":{{"x{}":true}},"minProperties":20000}})", i,
                       i);
  });
  EXPECT_THAT(ErrorOf(R"({"type":"object","properties":{)" + objects + "}}"),
              HasSubstr("the format is too large"));
}

TEST_F(ExpensiveFormat, ARefusalIsRememberedAndTheSame) {
  const std::string schema = R"({"type":"string","pattern":"(a|b)*a(a|b){24}c"})";
  const std::string first = ErrorOf(schema);
  EXPECT_THAT(first, HasSubstr("the format is too large"));
  EXPECT_EQ(cache_.size(), 1U);
  EXPECT_EQ(ErrorOf(schema), first);
  EXPECT_EQ(cache_.size(), 1U);
}

TEST_F(ExpensiveFormat, ACanceledRequestStopsCompiling) {
  const std::atomic<bool> canceled = true;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  EXPECT_THROW(ErrorOf(R"({"type":"string","pattern":"(a|b)*a(a|b){24}c"})"), WorkStopped);
  EXPECT_EQ(cache_.size(), 0U);
}

}  // namespace
}  // namespace quire::runner::constraint
