#include "api/json/option_fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <type_traits>
#include <vector>

#include "api/json/read.h"

namespace quire::api {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseOptions, ReadsTheWholeTable) {
  const auto parsed = ParseOptions(R"({
    "num_ctx": 8192, "num_predict": -2, "num_keep": -1, "temperature": 0.25, "top_k": 0, "top_p": 1.5, "min_p": 0.05,
    "typical_p": 0.9, "repeat_last_n": -1, "repeat_penalty": 1.1, "presence_penalty": -0.5, "frequency_penalty": 2,
    "seed": 9007199254740993, "stop": ["a", "", "b"], "num_batch": 512, "num_gpu": -1, "use_mmap": true,
    "mirostat": 0, "mirostat_tau": 5.0, "bogus": {"x": 1}})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Options& o = parsed->options;
  EXPECT_EQ(o.num_ctx, 8192);
  EXPECT_EQ(o.num_predict, -2);
  EXPECT_EQ(o.num_keep, -1);
  EXPECT_EQ(o.temperature, 0.25F);
  EXPECT_EQ(o.top_k, 0);
  EXPECT_EQ(o.top_p, 1.5F);
  EXPECT_EQ(o.min_p, 0.05F);
  EXPECT_EQ(o.typical_p, 0.9F);
  EXPECT_EQ(o.repeat_last_n, -1);
  EXPECT_EQ(o.repeat_penalty, 1.1F);
  EXPECT_EQ(o.presence_penalty, -0.5F);
  EXPECT_EQ(o.frequency_penalty, 2.0F);
  EXPECT_EQ(o.seed, 9007199254740993);
  EXPECT_THAT(*o.stop, ElementsAre("a", "b"));
  EXPECT_THAT(parsed->unknown, ElementsAre("bogus"));
}

TEST(ParseOptions, TakesOneStopStringAndIntegralFloats) {
  const auto parsed = ParseOptions(R"({"stop": "END", "num_ctx": 512.0, "seed": 3e2, "top_k": null})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(*parsed->options.stop, ElementsAre("END"));
  EXPECT_EQ(parsed->options.num_ctx, 512);
  EXPECT_EQ(parsed->options.seed, 300);
  EXPECT_FALSE(parsed->options.top_k);
}

TEST(ReadTextsOfOptions, ReadsThemAsGoDoes) {
  const auto read = ReadTextsOfOptions(
      R"({"temperature":".9","top_p":"1.","min_p":"+0.05","top_k":"040","seed":"+40","num_ctx":"-1","use_mmap":1,)"
      R"("low_vram":"T","num_gpu":"01","stop":["1"],"repeat_penalty":"nan","repeat_last_n":"4.5","bogus":"1"})");
  ASSERT_TRUE(read);
  EXPECT_EQ(
      *ReadJson(*read),
      *ReadJson(
          R"({"temperature":0.9,"top_p":1.0,"min_p":0.05,"top_k":40,"seed":40,"num_ctx":-1,"use_mmap":true,)"
          R"("low_vram":true,"num_gpu":1,"stop":["1"],"repeat_penalty":"nan","repeat_last_n":"4.5",)"
          R"("bogus":"1"})"));
}

TEST(ParseOptions, SaysWhichOptionAndWhatItMustBe) {
  const auto hot = ParseOptions(R"({"temperature": "hot"})");
  ASSERT_FALSE(hot);
  EXPECT_EQ(hot.error().message, "option \"temperature\" must be of type number");
  EXPECT_EQ(hot.error().field, "options.temperature");
  EXPECT_EQ(hot.error().code, ErrorCode::kInvalidArgument);
  const auto half = ParseOptions(R"({"num_ctx": 1.5})");
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().message, "option \"num_ctx\" must be of type integer");
  const auto hint = ParseOptions(R"({"use_mmap": 1})");
  ASSERT_FALSE(hint);
  EXPECT_EQ(hint.error().message, "option \"use_mmap\" must be of type boolean");
  EXPECT_FALSE(ParseOptions("[]"));
  EXPECT_FALSE(ParseOptions(""));
}

TEST(ParseOptions, BoundsStopStrings) {
  for (const std::string& stop : {std::string("5"), std::string("[1]"), std::string("{}"),
                                  std::string("[[\"a\"]]"), "\"" + std::string(8'193, 'a') + "\""}) {
    const auto parsed = ParseOptions("{\"stop\":" + stop + "}");
    ASSERT_FALSE(parsed) << stop;
    EXPECT_THAT(parsed.error().message, HasSubstr("option \"stop\""));
  }
  std::string many = "\"a\"";
  for (int i = 0; i < 1024; ++i) many += ",\"a\"";
  EXPECT_FALSE(ParseOptions("{\"stop\":[" + many + "]}"));
}

// ---- docs/api.md ----

std::string ReadApiDocs() {
  std::ifstream file("docs/api.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string RangeOf(const OptionRow& row) {
  if (row.max) return fmt::format("{} to {}", *row.min, *row.max);
  return row.min ? fmt::format("≥ {}", *row.min) : "any";
}

template <class T>
std::string DocsRow(const OptionRow& row, const T& standard) {
  std::string type = "integer";
  if constexpr (std::is_same_v<T, int64_t>) type = "integer, 64 bits";
  if constexpr (std::is_same_v<T, float>) type = "number";
  if constexpr (std::is_same_v<T, bool>) type = "boolean";
  return fmt::format("\n| {} | {} | {} | {} | {} |\n", row.name, type, RangeOf(row), standard, row.help);
}
std::string DocsRow(const OptionRow& row, const std::vector<std::string>& standard) {
  std::string texts;
  for (const std::string& text : standard) texts += (texts.empty() ? "`" : " ") + DumpJson(Json(text));
  return fmt::format("\n| {} | string or array of strings | 1,024 strings, 8 KiB together | {} | {} |\n",
                     row.name, texts.empty() ? "none" : texts + "`", row.help);
}

TEST(DumpOptions, IsReadAgain) {
  EXPECT_EQ(DumpOptions({}), "");
  constexpr const char* kText =
      R"({"temperature":0.6,"top_k":-1,"top_p":0.95,"ignore_eos":true,"stop":["a","b"]})";
  const auto parsed = ParseOptions(kText);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->options.temperature, 0.6F);
  EXPECT_EQ(DumpOptions(parsed->options), kText);
}

TEST(ApplySampling, SetsWhatTheTextSays) {
  GenerationParams params;
  ApplySampling(R"({"top_k":7,"temperature":0.25})", params);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.temperature, 0.25F);
  EXPECT_EQ(params.top_p, 0.9F);
  for (const char* text : {"", "x", "[]", R"({"top_k":"x"})"}) ApplySampling(text, params);
  EXPECT_EQ(params.top_k, 7);
}

TEST(SamplingSources, AParameterGoesBeforeTheFile) {
  EXPECT_EQ(
      SamplingSources(R"({"temperature":0.6,"top_k":20})", "file", R"({"num_ctx":9,"top_k":3,"num_gpu":1})"),
      R"({"temperature":{"value":0.6,"from":"file"},"top_k":{"value":3,"from":"PARAMETER"}})");
  EXPECT_EQ(SamplingSources("", "", ""), "");
  EXPECT_EQ(SamplingSources("[", "file", R"({"stop":["x"]})"),
            R"({"stop":{"value":["x"],"from":"PARAMETER"}})");
}

TEST(OptionTable, TheDocumentationHasEveryRow) {
  const std::string docs = ReadApiDocs();
  const size_t openai = docs.find("## OpenAI");
  ASSERT_NE(openai, std::string::npos);
  EXPECT_THAT(docs.substr(openai), HasSubstr("\n| all options |"));
  const GenerationParams standards;
  VisitOptions(
      [&](const OptionRow& row, const auto& standard) {
        using Standard = std::remove_cvref_t<decltype(standard)>;
        if constexpr (!std::is_same_v<Standard, std::vector<LogitBias>> &&
                      !std::is_same_v<Standard, std::vector<TokenId>>) {
          EXPECT_TRUE(row.in_options());
          EXPECT_THAT(docs, HasSubstr(DocsRow(row, standard)));
        }
      },
      standards);
}

TEST(OptionTable, TheDocumentationNamesTheOptionsWithoutEffect) {
  const std::string docs = ReadApiDocs();
  const size_t begin = docs.find("without effect: `num_batch");
  ASSERT_NE(begin, std::string::npos);
  std::string names = docs.substr(begin, docs.find("\n\n", begin) - begin);
  int checked = 0;
  const std::regex name("[a-z0-9]+(_[a-z0-9]+)+|numa");
  for (std::sregex_iterator it(names.begin(), names.end(), name), end; it != end; ++it, ++checked) {
    const auto parsed = ParseOptions("{\"" + it->str() + "\": null}");
    ASSERT_TRUE(parsed);
    EXPECT_TRUE(parsed->unknown.empty()) << it->str();
    EXPECT_FALSE(ParseOptions("{\"" + it->str() + "\": {}}")) << it->str();
  }
  EXPECT_EQ(checked, 13);
}

}  // namespace
}  // namespace quire::api
