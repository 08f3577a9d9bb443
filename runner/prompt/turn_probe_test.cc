// What templates refuse or drop, and how their conversations are said instead.
#include "runner/prompt/turn_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/prompt/prompt_template.h"

namespace quire::runner {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Messages = std::vector<api::Message>;

constexpr const char* kAlternating =
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{% if add_generation_prompt %}[assistant:{% endif %}";
constexpr const char* kPlain =
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{% if add_generation_prompt "
    "%}[assistant:{% endif %}";
// Shows everything, refuses what the tests below give it to refuse.
std::string Whole(const std::string& before = "") {
  return before +
         "{% if tools %}{{ tools | tojson }}{% endif %}"
         "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function | "
         "tojson }}"
         "{% endfor %}]{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}";
}

api::Message System(const char* text) { return {.role = "system", .content = text}; }
api::Message User(const char* text) { return {.role = "user", .content = text}; }
api::Message Answer(const char* text, std::vector<api::ToolCall> calls = {}) {
  return {.role = "assistant", .content = text, .tool_calls = std::move(calls)};
}
api::Message ResultOf(const char* id, const char* text) {
  return {.role = "tool", .content = text, .tool_name = "f", .tool_call_id = id};
}

std::shared_ptr<const PromptTemplate> Probed(std::string_view source) {
  auto parsed = PromptTemplate::Parse(source);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  return *parsed;
}

std::string Shown(const PromptTemplate& chat, const Messages& messages,
                  const std::vector<api::Tool>& tools = {}) {
  const auto rendered = chat.Render(messages, tools);
  if (!rendered) return "refused: " + rendered.error().message;
  std::string text;
  for (const PromptSegment& segment : *rendered) text += segment.text;
  return text;
}

std::vector<api::Tool> OneTool() {
  return {{.name = "f", .definition_json = R"({"type":"function","function":{"name":"f","parameters":{}}})"}};
}

TEST(TurnProbe, ATemplateThatShowsEverythingIsLeftAlone) {
  const auto whole = Probed(Whole());
  EXPECT_EQ(whole->rules(), TurnRules());
  EXPECT_THAT(whole->notes(), IsEmpty());
  EXPECT_THAT(whole->unserved(), IsEmpty());
}

TEST(TurnProbe, TurnsAlternateWhereTheTemplateWantsIt) {
  const auto chat = Probed(kAlternating);
  EXPECT_EQ(Shown(*chat, {User("a"), User("b")}), "[user:a\n\nb][assistant:");
  EXPECT_EQ(Shown(*chat, {User("a"), Answer("x"), Answer("y"), User("b")}),
            "[user:a][assistant:x\n\ny][user:b][assistant:");
  EXPECT_EQ(Shown(*chat, {Answer("hello"), User("a")}), "[user:][assistant:hello][user:a][assistant:");
  EXPECT_EQ(Shown(*chat, {System("s"), User("a")}), "[user:s\n\na][assistant:");
  EXPECT_EQ(Shown(*chat, {System("s"), System("t"), Answer("x")}), "[user:s\n\nt][assistant:x");
  EXPECT_EQ(Shown(*chat, {User("a"), Answer("x"), System("s"), User("b")}),
            "[user:a][assistant:x][user:s\n\nb][assistant:");
  EXPECT_EQ(Shown(*chat, {User("a"), Answer("x"), System("s")}), "[user:a][assistant:x][user:s][assistant:");
  EXPECT_EQ(Shown(*chat, {User("a"), Answer(""), User("b")}), "[user:a][assistant:][user:b][assistant:");
}

// As Gemma 4's template, which looks for results behind their call alone.
TEST(TurnProbe, ResultsStandBehindTheirCallsWhereTheTemplateLooksThere) {
  const auto chat = Probed(
      "{% if tools %}{{ tools | tojson }}{% endif %}"
      "{% for m in messages %}{% if m.role != 'tool' %}[{{ m.role }}:{{ m.content }}"
      "{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}]{% endif %}"
      "{% if m.role == 'tool' and (loop.previtem.tool_calls or loop.previtem.role == 'tool') %}"
      "[result:{{ m.content }}]{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant:{% endif %}");
  EXPECT_TRUE(chat->rules().results_at_calls);
  const Messages apart = {User("a"), Answer("", {{"c", "f", "{}"}, {"d", "f", "{}"}}), ResultOf("c", "r"),
                          User("b"), ResultOf("d", "s")};
  EXPECT_THAT(Shown(*chat, apart, OneTool()), HasSubstr("[result:r][result:s][user:b]"));
}

// As Nemotron Nano v2's template, which goes on with a last answer, but not with its calls.
TEST(TurnProbe, CallsWithoutResultsAtTheEndStandInTheText) {
  const auto chat = Probed(
      "{% if tools %}{{ tools | tojson }}{% endif %}"
      "{% for m in messages %}{% if loop.last and m.role == 'assistant' %}[assistant:{{ m.content }}"
      "{% else %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor "
      "%}]"
      "{% if loop.last %}[assistant:{% endif %}{% endif %}{% endfor %}");
  EXPECT_THAT(chat->notes(), testing::Contains(HasSubstr("drops calls at the end")));
  const std::string text = Shown(*chat, {User("a"), Answer("x", {{"c", "f", R"({"b":"v"})"}})}, OneTool());
  EXPECT_THAT(text, HasSubstr("[assistant:x\n<tool_call>\n{\"name\": \"f\""));
  EXPECT_THAT(text, HasSubstr(R"({"b":"v"})"));
  EXPECT_THAT(Shown(*chat, {User("a"), Answer("", {{"c", "f", "{}"}}), ResultOf("c", "r")}, OneTool()),
              Not(HasSubstr("<tool_call>")));
}

// Whatever is said later: what was said stays where it was.
TEST(TurnProbe, ALongerConversationBeginsWithTheShorterOne) {
  const Messages all = {
      System("s"),        User("a"),   Answer("x"), System("t"), User("b"), Answer("", {{"c", "f", "{}"}}),
      ResultOf("c", "r"), Answer("y"), User("c"),   Answer("z"), User("d")};
  for (const std::string& source : {std::string(kAlternating), std::string(kPlain), Whole()}) {
    const auto chat = Probed(source);
    std::string before;
    for (const size_t count : {2U, 5U, 7U, 9U, 11U}) {
      std::string text =
          Shown(*chat, Messages(all.begin(), all.begin() + static_cast<ptrdiff_t>(count)), OneTool());
      EXPECT_TRUE(text.starts_with(before)) << text << "\ndoes not begin with\n" << before;
      before = std::move(text);
    }
  }
}

TEST(TurnProbe, ASystemMessageTheTemplateDropsIsSaid) {
  const auto first_only = Probed(
      "{% if messages[0].role == 'system' %}<{{ messages[0].content }}>{% endif %}"
      "{% for m in messages %}{% if m.role != 'system' %}[{{ m.content }}]{% endif %}{% endfor %}");
  EXPECT_EQ(Shown(*first_only, {System("s"), System("t"), User("a")}), "<s\n\nt>[a]");
  EXPECT_EQ(Shown(*first_only, {System("s"), User("a"), Answer("x"), System("t"), User("b")}),
            "<s>[a][x][t\n\nb]");
  const auto none = Probed(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
      "[{{ m.content }}]{% endfor %}");
  EXPECT_EQ(Shown(*none, {System("s"), User("a")}), "[s\n\na]");
  EXPECT_THAT(none->notes(), testing::Contains(HasSubstr("no system role")));
}

TEST(TurnProbe, ContentIsAListOfPartsWhereTheTemplateWalksIt) {
  for (const char* content :
       {"{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}",
        "{{ m.content[0].text }}",
        "{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}{% endfor %}"}) {
    const auto chat = Probed("{% for m in messages %}[" + std::string(content) + "]{% endfor %}");
    EXPECT_EQ(Shown(*chat, {System("s"), User("a"), Answer("x"), User("b")}), "[s][a][x][b]") << content;
    EXPECT_EQ(Shown(*chat, {User("a"), Answer("go on")}), "[a][go on") << content;
  }
  const auto mixed = Probed(
      "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content[0].text }}]{% else %}"
      "[{{ m.content + '' }}]{% endif %}{% endfor %}");
  EXPECT_EQ(Shown(*mixed, {System("s"), User("a"), Answer("x")}), "[s][a][x");
}

TEST(TurnProbe, CallsAndResultsThatTheTemplateDropsAreText) {
  const auto chat = Probed(kPlain);
  const Messages messages = {User("a"), Answer("wait", {{"c1", "f", R"({"x":1})"}}), ResultOf("c1", "r")};
  EXPECT_EQ(Shown(*chat, messages),
            "[user:a][assistant:wait\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
            "{\"x\":1}}\n</tool_call>][tool:r][assistant:");
  // The markers are the template's, what stands between them is the request's.
  const auto rendered = chat->Render(messages, {});
  ASSERT_TRUE(rendered.has_value());
  for (const PromptSegment& segment : *rendered) {
    const bool marker = segment.text.find("<tool_call>") != std::string::npos;
    const bool arguments = segment.text.find("{\"x\":1}") != std::string::npos;
    EXPECT_TRUE(!marker || segment.from_template) << segment.text;
    EXPECT_TRUE(!arguments || !segment.from_template) << segment.text;
  }
  const auto no_results =
      Probed("{% for m in messages %}{% if m.role != 'tool' %}[{{ m.content }}]{% endif %}{% endfor %}");
  EXPECT_THAT(Shown(*no_results, messages), HasSubstr("<tool_response>\nr\n</tool_response>"));
}

TEST(TurnProbe, ToolsThatTheTemplateDoesNotShowAreDescribed) {
  const auto chat = Probed(kPlain);
  EXPECT_TRUE(chat->rules().tools_as_text);
  const std::string shown = Shown(*chat, {System("s"), User("a")}, OneTool());
  EXPECT_THAT(shown, testing::StartsWith("[system:s\n\n# Tools"));
  EXPECT_THAT(shown, HasSubstr(OneTool().front().definition_json));
  EXPECT_THAT(shown, HasSubstr("<tool_call>"));
  EXPECT_THAT(Shown(*Probed(kAlternating), {User("a")}, OneTool()), testing::StartsWith("[user:# Tools"));
  EXPECT_THAT(Shown(*Probed(Whole()), {User("a")}, OneTool()), Not(HasSubstr("# Tools")));
}

TEST(TurnProbe, CallIdsAreWhatTheTemplateTakes) {
  const auto nine = Probed(Whole(
      "{% for m in messages %}{% for c in m.tool_calls %}{% if not c.id is defined or c.id | length != 9 %}"
      "{{ raise_exception('nine') }}{% endif %}<{{ c.id }}>{% endfor %}"
      "{% if m.role == 'tool' %}({{ m.tool_call_id }}){% endif %}{% endfor %}"));
  const auto ids = [&](const char* id) {
    const std::string shown = Shown(*nine, {User("a"), Answer("", {{id, "f", "{}"}}), ResultOf(id, "r")});
    const size_t call = shown.find('<'), result = shown.find('(');
    EXPECT_EQ(shown.substr(call + 1, 9), shown.substr(result + 1, 9)) << shown;
    return shown.substr(call + 1, 9);
  };
  EXPECT_EQ(ids("abcdefgh1"), "abcdefgh1");
  EXPECT_EQ(ids("call_1234567890"), ids("call_1234567890"));
  EXPECT_NE(ids("call_1234567890"), ids("call_1234567891"));
  EXPECT_EQ(ids(""), "call00001");
}

TEST(TurnProbe, ParallelCallsFollowOneAnother) {
  const auto one =
      Probed(Whole("{% for m in messages %}{% if m.tool_calls and m.tool_calls | length != 1 %}{{ "
                   "raise_exception('one call') }}"
                   "{% endif %}{% endfor %}"));
  EXPECT_EQ(Shown(*one, {User("a"), Answer("t", {{"1", "f", "{}"}, {"2", "g", "{}"}}), ResultOf("2", "r2"),
                         ResultOf("1", "r1")}),
            "[user:a][assistant:t{\"name\": \"f\", \"arguments\": {}}][tool:r1]"
            "[assistant:{\"name\": \"g\", \"arguments\": {}}][tool:r2][assistant:");
}

TEST(TurnProbe, TextBesideCallsIsATurnOfItsOwn) {
  const auto chat = Probed(
      "{{ tools | tojson }}{% for m in messages %}[{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson "
      "}}"
      "{% else %}{{ m.content }}{% endif %}]{% endfor %}");
  EXPECT_THAT(Shown(*chat, {User("a"), Answer("t", {{"1", "f", "{}"}}), ResultOf("1", "r")}),
              HasSubstr("[a][t][{\"name\": \"f\", \"arguments\": {}}][r]"));
}

TEST(TurnProbe, ToolsGetWhatTheTemplateReadsWithoutAsking) {
  const auto strict = Probed(
      "{% for t in tools %}{{ t.function.name + t.function.description }}"
      "{% for n, p in t.function.parameters.properties.items() %}{{ n + p.type + p.description }}{% endfor %}"
      "{% endfor %}" +
      std::string(kPlain));
  EXPECT_FALSE(strict->rules().tools_as_text);
  const auto tool = [](const char* function) {
    return std::vector<api::Tool>{
        {.name = "f", .definition_json = R"({"type":"function","function":)" + std::string(function) + "}"}};
  };
  EXPECT_THAT(Shown(*strict, {User("a")}, tool(R"({"name":"f"})")), testing::StartsWith("f["));
  EXPECT_THAT(
      Shown(
          *strict, {User("a")},
          tool(
              R"({"name":"f","description":null,"parameters":{"type":"object","properties":{"x":{"type":["null","string"]}}}})")),
      testing::StartsWith("fxstring["));
}

TEST(TurnProbe, MalformedArgumentsAreShown) {
  const auto chat = Probed(Whole());
  const auto shown = [&](const char* arguments) {
    return Shown(*chat, {User("a"), Answer("", {{"1", "f", arguments}}), ResultOf("1", "r")});
  };
  for (const char* nothing : {"", "  ", "null", "{}"}) {
    EXPECT_THAT(shown(nothing), HasSubstr(R"("arguments": {}})")) << nothing;
  }
  EXPECT_THAT(shown(R"({"a": 1}{"b": 2})"), HasSubstr(R"("_raw": "{\"a\": 1}{\"b\": 2}")"));
  EXPECT_THAT(shown("[1]"), HasSubstr(R"("_raw": "[1]")"));
  EXPECT_THAT(shown("/tmp/a"), HasSubstr(R"("_raw": "/tmp/a")"));
}

// A template may take an hour for all that anybody knows.
TEST(TurnProbe, ATemplateThatRunsLongEndsTheProbe) {
  const auto slow = Probed("{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}" +
                           std::string(kPlain));
  EXPECT_THAT(slow->unserved(), Not(IsEmpty()));
}

}  // namespace
}  // namespace quire::runner
