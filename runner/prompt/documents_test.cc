#include "runner/prompt/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "runner/prompt/format_table.h"
#include "runner/prompt/prompt_template.h"

namespace quire::runner {
namespace {

using testing::HasSubstr;

constexpr const char* kDocuments =
    R"({"documents":[{"title":"Aare","text":"288 km \"long\"\n"},{"doc_id":"r2","text":"Größe"}]})";

api::Result<std::string> PromptWith(const std::string& arguments, std::string_view source) {
  const auto parsed = PromptTemplate::Parse(source);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  const std::vector<api::Message> messages = {{.role = "user", .content = "How long?"}};
  const auto segments = (*parsed)->Render(messages, {}, {.arguments_json = arguments});
  if (!segments) return std::unexpected(segments.error());
  std::string text;
  for (const PromptSegment& segment : *segments) text += segment.text;
  return text;
}

TEST(Documents, TemplatesShowThem) {
  for (const char* source :
       {"{% for d in documents %}{{ d.title }}: {{ d.text | trim }}{% endfor %}{{ messages[0].content }}",
        "{{ messages[0].content }}{{ documents | tojson }}"}) {
    const auto prompt = PromptWith(kDocuments, source);
    ASSERT_TRUE(prompt.has_value()) << source << prompt.error().message;
    EXPECT_THAT(*prompt, HasSubstr("Größe"));
  }
}

TEST(Documents, NoToolsAreAnEmptyListBesideThem) {
  constexpr std::string_view kSource =
      "{% if documents %}{% for t in tools %}t{% endfor %}{{ documents | tojson }}{% endif %}";
  const auto prompt = PromptWith(R"({"documents":[{"text":"a"}]})", kSource);
  ASSERT_TRUE(prompt.has_value()) << prompt.error().message;
  EXPECT_EQ(*PromptWith("", "{{ tools is none }}"), "True");
}

TEST(Documents, ATextThatIsNotShownIsNamed) {
  struct Case {
    const char* source;
    const char* missing;
  };
  const Case cases[] = {
      {"{{ messages[0].content }}", R"(documents[0]: the model's chat template does not show its "title")"},
      {"{% for d in documents %}{{ d.title }}{% endfor %}", R"(documents[0])"},
      {"{{ documents[0] | tojson }}", R"(documents[1]: the model's chat template does not show its "text")"}};
  for (const Case& one : cases) {
    const auto prompt = PromptWith(kDocuments, one.source);
    ASSERT_FALSE(prompt.has_value()) << *prompt;
    EXPECT_EQ(prompt.error().code, api::ErrorCode::kUnsupported);
    EXPECT_EQ(prompt.error().field, "documents");
    EXPECT_THAT(prompt.error().message, HasSubstr(one.missing));
  }
}

TEST(Documents, AGoTemplateTakesNone) {
  const auto parsed = PromptTemplate::ParseGo("{{ .Prompt }}");
  ASSERT_TRUE(parsed.has_value());
  const std::vector<api::Message> messages = {{.role = "user", .content = "q"}};
  const auto refused = (*parsed)->Render(messages, {}, {.arguments_json = kDocuments});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "documents");
}

// Also where their texts are in the prompt for another reason.
TEST(Documents, ATemplateThatIgnoresThemIsNamed) {
  const auto prompt = PromptWith(R"({"documents":[{"text":"o"}]})", "{{ messages[0].content }}");
  ASSERT_FALSE(prompt.has_value());
  EXPECT_EQ(prompt.error().field, "documents");
}

// The prompts themselves are recorded (format_golden_test.cc).
TEST(Documents, FormatsOfFamiliesThatKnowThemShowThem) {
  for (const NamedFormat& format : FamilyFormats()) {
    const std::string source = TemplateOf(format);
    const bool knows = source.find("documents") != std::string::npos;
    EXPECT_EQ(PromptWith(R"({"documents":[{"text":"Größe"}]})", source).has_value(), knows) << format.name;
  }
}

// A text that looks like markup is text.
TEST(Documents, AreOfTheRequest) {
  const auto parsed = PromptTemplate::Parse("<a>{{ documents[0].text }}</a>");
  ASSERT_TRUE(parsed.has_value());
  const std::vector<api::Message> messages = {{.role = "user", .content = "q"}};
  const auto segments =
      (*parsed)->Render(messages, {}, {.arguments_json = R"({"documents":[{"text":"<a>"}]})"});
  ASSERT_TRUE(segments.has_value());
  ASSERT_EQ(segments->size(), 3U);
  EXPECT_EQ(segments->at(1).text, "<a>");
  EXPECT_FALSE(segments->at(1).from_template);
}

}  // namespace
}  // namespace quire::runner
