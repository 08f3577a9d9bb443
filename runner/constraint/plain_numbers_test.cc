// Numbers without white space around them: each in the one way in which JSON.stringify writes it.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/constraint/json_grammar.h"
#include "runner/constraint/testing/byte_matching.h"

namespace quire::runner::constraint {
namespace {

std::shared_ptr<const Grammar> Plain(const std::string& schema) {
  const auto grammar = CompileFormat({api::OutputFormat::Kind::kSchema, schema, "format"});
  EXPECT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message;
  return grammar.value_or(nullptr);
}

void ExpectJudged(const std::string& schema, const std::vector<std::string>& matches,
                  const std::vector<std::string>& others) {
  const auto grammar = Plain(schema);
  for (const std::string& text : matches)
    EXPECT_EQ(Judge(*grammar, text), Verdict::kMatches) << schema << text;
  for (const std::string& text : others)
    EXPECT_NE(Judge(*grammar, text), Verdict::kMatches) << schema << text;
}

TEST(PlainNumbers, AreWrittenInOneWay) {
  ExpectJudged(R"({"type":"number"})",
               {"0", "7", "-7", "10", "123456789012345678", "0.5", "-0.5", "10.25", "0.000001", "0.00000125",
                "3.14159265358979", "99999999999999.5", "1e+21", "1.5e+30", "-2.25e-7", "1e-10", "9.99e+99"},
               {"-0",
                "00",
                "01",
                "1.0",
                "1.50",
                "0.0",
                "-0.0",
                "+1",
                ".5",
                "1.",
                "1e2",
                "1E5",
                "1e21",
                "1.e+21",
                "1.0e+21",
                "1e+20",
                "1e-6",
                "1e-07",
                "1e+021",
                "0e+21",
                "10e+21",
                "0.0000001",
                "1e+",
                "-",
                "3.1415926535897931",
                "1234567890123456789",
                "1e+100"});
}

TEST(PlainNumbers, WithBoundsToo) {
  ExpectJudged(R"({"type":"number","minimum":-2.5,"maximum":20})", {"-2.5", "-0.5", "0", "1.25", "20", "0.1"},
               {"-2.50", "-0", "0.0", "1.0", "20.0", "1e1", "20.1", "-2.6"});
  ExpectJudged(R"({"type":"integer","minimum":-2})", {"-2", "0", "10"}, {"-0", "1.0", "1e1", "-3"});
}

TEST(PlainNumbers, OfListsAsJavaScriptWritesThem) {
  ExpectJudged(R"({"enum":[1.0,-0.0,2.50,1e2,1e25,0.0000001]})", {"1", "0", "2.5", "100", "1e+25", "1e-7"},
               {"1.0", "-0", "-0.0", "2.50", "1e2", "100.0"});
  const std::vector<std::pair<double, std::string>> cases = {
      {1e21, "1e+21"},
      {1e20, "100000000000000000000"},
      {123456.75, "123456.75"},
      {1e-6, "0.000001"},
      {1.5e-7, "1.5e-7"},
      {-1.25e22, "-1.25e+22"},
      {0.1, "0.1"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {-0.001, "-0.001"},
      {12, "12"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(PlainNumberOf(api::Json(value)), text);
  EXPECT_EQ(PlainNumberOf(api::Json(uint64_t{18446744073709551615U})), "18446744073709551615");
}

TEST(PlainNumbers, InAnyDocument) {
  for (const std::string schema : {"{}", R"({"type":"array"})"}) {
    ExpectJudged(schema, {"[1,-0.5,0]"}, {"[1.0]", "[-0]", "[1e2]"});
  }
  // With white space numbers are as the model writes them.
  EXPECT_EQ(Judge(R"({"type":"number"})", "1.0"), Verdict::kMatches);
  EXPECT_EQ(Judge(R"({"enum":[1.0]})", "1.0"), Verdict::kMatches);
}

}  // namespace
}  // namespace quire::runner::constraint
