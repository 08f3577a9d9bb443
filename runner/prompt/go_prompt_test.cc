#include "runner/prompt/go_prompt.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/json/testing/tools_of.h"
#include "runner/prompt/prompt_template.h"

namespace quire::runner {
namespace {

using Messages = std::vector<api::Message>;

std::string Rendered(std::string_view source, const Messages& messages,
                     const std::vector<api::Tool>& tools = {}) {
  const auto parsed = PromptTemplate::ParseGo(source);
  if (!parsed) return parsed.error().message;
  const auto segments = (*parsed)->Render(messages, tools, std::tm{});
  if (!segments) return segments.error().message;
  std::string text;
  for (const PromptSegment& segment : *segments) text += segment.text;
  return text;
}

// Templates in the style of Ollama's own.
constexpr const char* kExchange =
    "{{ if .System }}<s>{{ .System }}</s>{{ end }}{{ if .Prompt }}<u>{{ .Prompt }}</u>{{ end }}<a>{{ "
    ".Response "
    "}}</a>";
constexpr const char* kConversation =
    "{{- if .System }}<s>{{ .System }}</s>{{ end }}"
    "{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 }}"
    "{{- if eq .Role \"user\" }}<u>{{ .Content }}</u>{{ else if eq .Role \"assistant\" }}<a>{{ .Content }}"
    "{{- range .ToolCalls }}[{{ .Function.Name }} {{ .Function.Arguments }}]{{ end }}"
    "{{- if not $last }}</a>{{ end }}{{ end }}"
    "{{- if and $last (ne .Role \"assistant\") }}<a>{{ end }}{{ end }}";

TEST(GoPrompt, RendersOneExchangeAfterAnother) {
  EXPECT_EQ(Rendered(kExchange, {{"system", "S"}, {"user", "q1"}, {"assistant", "a1"}, {"user", "q2"}}),
            "<s>S</s><u>q1</u><a>a1</a><u>q2</u><a>");
  EXPECT_EQ(Rendered(kExchange, {{"user", "q1"}, {"tool", "r"}}), "<u>q1</u><a></a><u>r</u><a>");
}

TEST(GoPrompt, PutsTheAnswerAtTheEndOfATemplateThatDoesNotSayWhere) {
  EXPECT_EQ(Rendered("{{ if .System }}SYS {{ .System }} {{ end }}U {{ .Prompt }} A ", {{"user", "the cat"}}),
            "U the cat A ");
  EXPECT_EQ(Rendered("U {{ .Prompt }} A ", {{"user", "q1"}, {"assistant", "a1 "}, {"user", "q2"}}),
            "U q1 A a1 U q2 A ");
}

TEST(GoPrompt, RendersAConversation) {
  EXPECT_EQ(Rendered(kConversation, {{"system", "S"}, {"user", "q1"}, {"assistant", "a1"}, {"user", "q2"}}),
            "<s>S</s><u>q1</u><a>a1</a><u>q2</u><a>");
  Messages messages = {{"user", "q"}, {"assistant", ""}, {"tool", "r"}};
  messages[1].tool_calls = {{"id", "f", R"({"b":1,"a":"x"})"}};
  EXPECT_EQ(Rendered(kConversation, messages), R"(<u>q</u><a>[f {"b":1,"a":"x"}]</a><a>)");
}

TEST(GoPrompt, NeighborsOfOneRoleAreOneMessage) {
  const Messages messages = {{"user", "q1"}, {"user", "q2"}, {"tool", "r1"}, {"tool", "r2"}};
  EXPECT_EQ(Rendered("{{ range .Messages }}<{{ .Role }} {{ .Content }}>{{ end }}", messages),
            "<user q1\n\nq2><tool r1><tool r2>");
  EXPECT_EQ(Rendered(kExchange, {{"user", "q1"}, {"user", "q2"}}), "<u>q1\n\nq2</u><a>");
}

TEST(GoPrompt, InsertsBetweenPromptAndSuffix) {
  const auto parsed = PromptTemplate::ParseGo("{{ if .Suffix }}<P>{{ .Prompt }}<S>{{ .Suffix }}<M>{{ end }}");
  ASSERT_TRUE(parsed);
  EXPECT_TRUE((*parsed)->SupportsFim());
  const auto segments = (*parsed)->RenderFim("a<M>", "b", {});
  ASSERT_TRUE(segments) << segments.error().message;
  std::string text;
  for (const PromptSegment& segment : *segments) {
    text += segment.text;
    EXPECT_EQ(segment.from_template, segment.text.starts_with('<')) << segment.text;
  }
  EXPECT_EQ(text, "<P>a<M><S>b<M>");
  const auto other = PromptTemplate::ParseGo(kExchange);
  EXPECT_FALSE((*other)->SupportsFim());
  EXPECT_FALSE((*other)->RenderFim("a", "b", {}));
}

TEST(GoPrompt, GoesOnWithAnAnswer) {
  const Messages messages = {{"user", "q"}, {"assistant", "it is"}};
  EXPECT_EQ(Rendered(kConversation, messages), "<u>q</u><a>it is");
  EXPECT_EQ(Rendered(kExchange, messages), "<u>q</u><a>it is");
  EXPECT_EQ(Rendered("U {{ .Prompt }} A ", messages), "U q A it is");
}

TEST(GoPrompt, ShowsToolsAndEmptyFields) {
  const auto tools = api::testing::ToolsOf(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_EQ(Rendered("{{ range .Tools }}{{ . }};{{ .Function.Name }}{{ .Function.Parameters.Type }}{{ end }}"
                     "{{ range .Messages }}[{{ .Thinking }}{{ .ToolName }}{{ .ToolCallID }}]{{ end }}",
                     {{"user", "q"}}, tools),
            R"({"type":"function","function":{"name":"f","parameters":{"type":"object"}}};fobject[])");
}

TEST(GoPrompt, MarksWhatCameFromTheRequest) {
  const auto parsed = PromptTemplate::ParseGo("<|im_start|>{{ .Prompt }}<|im_end|>");
  ASSERT_TRUE(parsed);
  const Messages messages = {{"user", "<|im_end|>"}};
  const auto segments = (*parsed)->Render(messages, {}, std::tm{});
  ASSERT_TRUE(segments);
  ASSERT_EQ(segments->size(), 3U);
  EXPECT_TRUE((*segments)[0].from_template);
  EXPECT_FALSE((*segments)[1].from_template);
  EXPECT_EQ((*segments)[1].text, "<|im_end|>");
  EXPECT_TRUE((*segments)[2].from_template);
}

TEST(GoPrompt, AnExchangeGrowsByItsOwnTokens) {
  const Messages shorter = {{"user", "q1"}};
  const Messages longer = {{"user", "q1"}, {"assistant", "a1"}, {"user", "q2"}};
  for (const char* source : {kExchange, kConversation}) {
    EXPECT_TRUE(Rendered(source, longer).starts_with(Rendered(source, shorter))) << source;
  }
}

}  // namespace
}  // namespace quire::runner
