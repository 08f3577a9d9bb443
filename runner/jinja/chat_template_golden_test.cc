// Every published template of the fixtures, rendered for every conversation, against what Hugging Face
// renders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/jinja/json_reader.h"
#include "runner/jinja/template.h"
#include "runner/jinja/unicode.h"
#include "tests/data/test_data.h"

namespace quire::runner::jinja {
namespace {

using nlohmann::ordered_json;

std::filesystem::path TemplateFolder() { return test_data::FixturesPath() / "chat_templates"; }

ordered_json Load(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return ordered_json::parse(file);
}

// The templates' file names, or one empty name when the fixtures are not there.
std::vector<std::string> TemplateNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(TemplateFolder(), error)) {
    const std::string stem = entry.path().stem();
    if (entry.path().extension() == ".json" && stem != "conversations") names.push_back(stem);
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) names.emplace_back();
  return names;
}

class ChatTemplateGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam().empty()) GTEST_SKIP() << "no fixtures in " << TemplateFolder();
    conversations_ = Load(TemplateFolder() / "conversations.json");
    options_.now.tm_year = 2026 - 1900;
    options_.now.tm_mon = 0;
    options_.now.tm_mday = 15;
    options_.now.tm_hour = 12;
    options_.now.tm_min = 34;
    options_.now.tm_sec = 56;
    options_.now.tm_wday = 4;
    options_.now.tm_yday = 14;
  }

  Value Variables(const std::string& id, Trust trust) const {
    for (const ordered_json& conversation : conversations_["cases"]) {
      if (conversation["id"] != id) continue;
      std::vector<std::pair<std::string, Value>> variables;
      const auto add = [&](const std::string& name, const ordered_json& json, Trust of) {
        variables.emplace_back(name, JsonReader(of).Read(json.dump()).value());
      };
      for (const auto& [name, token] : conversations_["special_tokens"].items())
        add(name, token, Trust::kTemplate);
      add("messages", conversation["messages"], trust);
      add("tools", conversation["tools"], trust);
      add("documents", nullptr, trust);
      add("add_generation_prompt", conversation["add_generation_prompt"], trust);
      for (const auto& [name, value] : conversation["kwargs"].items()) add(name, value, trust);
      return Value::MakeDict(std::move(variables));
    }
    ADD_FAILURE() << "no conversation " << id;
    return Value();
  }

  ordered_json conversations_;
  RenderOptions options_;
};

void CheckRanges(const TrackedText& tracked) {
  size_t at = 0;
  for (const ByteRange& range : tracked.untrusted) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(range.begin > at || (range.begin == 0 && at == 0)) << "ranges touch or are out of order";
    at = range.end;
    EXPECT_TRUE(
        api::IsValidUtf8(std::string_view(tracked.text).substr(range.begin, range.end - range.begin)));
  }
  EXPECT_LE(at, tracked.text.size());
}

TEST_P(ChatTemplateGolden, RendersAsHuggingFaceDoes) {
  const ordered_json golden = Load(TemplateFolder() / (GetParam() + ".json"));
  const auto parsed = Template::Parse(golden["template"].get<std::string>());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_FALSE(golden["results"].empty());
  for (const ordered_json& result : golden["results"]) {
    const std::string id = result["case"];
    SCOPED_TRACE(id);
    const auto rendered = parsed->Render(Variables(id, Trust::kTemplate), options_);
    if (result.contains("expected")) {
      ASSERT_TRUE(rendered.has_value()) << rendered.error().message;
      EXPECT_EQ(*rendered, result["expected"].get<std::string>());
    } else {
      ASSERT_FALSE(rendered.has_value()) << "expected to fail with " << result["error"];
      EXPECT_EQ(rendered.error().code, api::ErrorCode::kInvalidArgument);
      if (result["error_kind"] == "raise_exception") {
        EXPECT_EQ(rendered.error().message, result["error"].get<std::string>());
      }
    }
  }
}

TEST_P(ChatTemplateGolden, TrackingTrustChangesNoText) {
  const ordered_json golden = Load(TemplateFolder() / (GetParam() + ".json"));
  const auto parsed = Template::Parse(golden["template"].get<std::string>());
  ASSERT_TRUE(parsed.has_value());
  for (const ordered_json& result : golden["results"]) {
    if (!result.contains("expected")) continue;
    const std::string id = result["case"];
    SCOPED_TRACE(id);
    const auto tracked = parsed->RenderTracked(Variables(id, Trust::kRequest), options_);
    ASSERT_TRUE(tracked.has_value()) << tracked.error().message;
    EXPECT_EQ(tracked->text, result["expected"].get<std::string>());
    CheckRanges(*tracked);
  }
}

INSTANTIATE_TEST_SUITE_P(Published, ChatTemplateGolden, testing::ValuesIn(TemplateNames()),
                         [](const testing::TestParamInfo<std::string>& param) {
                           std::string name = param.param.empty() ? "FixturesAbsent" : param.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::runner::jinja
