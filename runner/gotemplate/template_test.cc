#include "runner/gotemplate/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "runner/work/work_budget.h"

namespace quire::runner::gotemplate {
namespace {

using jinja::Trust;
using jinja::Value;
using ::testing::HasSubstr;

Value Message(std::string role, std::string content) {
  return Value::MakeDict({{"role", Value::String(std::move(role))},
                          {"content", Value::String(std::move(content), Trust::kRequest)},
                          {"tool_call_id", Value::String("id7")}});
}

Value Data() {
  const Value property = Value::MakeDict({{"type", Value::String("string")}});
  return Value::MakeDict(
      {{"System", Value::String("be good")},
       {"Prompt", Value::String("hello", Trust::kRequest)},
       {"Response", Value::String("")},
       {"Empty", Value::String("")},
       {"Nil", Value()},
       {"Three", Value(int64_t{3})},
       {"Half", Value(0.5)},
       {"Yes", Value(true)},
       {"Union",
        Value::MakeDict(
            {{"anyOf", Value::MakeList({Value::MakeDict({{"type", Value::MakeList({Value::String("integer"),
                                                                                   Value::String("null")})}}),
                                        Value::MakeDict({{"type", Value::String("array")}})})}})},
       {"List", Value::MakeList({Value::String("a"), Value::String("b"), Value::String("c")})},
       {"Map", Value::MakeDict({{"x", Value(int64_t{1})}, {"city", property}})},
       {"Messages",
        Value::MakeList({Message("user", "q1"), Message("assistant", "a1"), Message("user", "q2")})}});
}

std::tm Day() {
  std::tm day = {};
  day.tm_year = 124;
  day.tm_mon = 2;
  day.tm_mday = 1;
  return day;
}

std::string Render(std::string_view source) {
  const auto parsed = Template::Parse(source);
  if (!parsed) return "PARSE: " + parsed.error().message;
  const std::array data = {Data()};
  const auto rendered = parsed->Render(data, false, Day());
  return rendered ? rendered->text : "RENDER: " + rendered.error().message;
}

struct Case {
  const char* source;
  const char* expected;
};

class GoTemplate : public ::testing::TestWithParam<Case> {};

TEST_P(GoTemplate, Renders) {
  EXPECT_EQ(Render(GetParam().source), GetParam().expected) << GetParam().source;
}

INSTANTIATE_TEST_SUITE_P(
    Text, GoTemplate,
    ::testing::Values(Case{"plain", "plain"}, Case{"", ""}, Case{"a {{ .Prompt }} b", "a hello b"},
                      Case{"a {{- .Prompt -}} b", "ahellob"}, Case{"a \n{{- /* note */ -}}\n b", "ab"},
                      Case{"a{{/* note */}}b", "ab"}, Case{"{{.Prompt}}{{.System}}", "hellobe good"},
                      Case{"{{ -3 }} {{- 4 }}", "-34"}, Case{"{{ \"{{ }}\" }}", "{{ }}"},
                      Case{"{{ `raw\\n` }}|{{ \"line\\n\\u00e9\\x41\" }}", "raw\\n|line\n\u00e9A"},
                      Case{"{{ 'a' }} {{ 0x10 }} {{ 1.5 }} {{ true }} {{ .Half }}", "97 16 1.5 true 0.5"},
                      Case{"{{ .Nil }}{{ .Absent }}", ""},
                      Case{"{{ .Map }} {{ .List }}", R"({"x":1,"city":{"type":"string"}} ["a","b","c"])"}));

INSTANTIATE_TEST_SUITE_P(
    Control, GoTemplate,
    ::testing::Values(
        Case{"{{ if .System }}S{{ end }}{{ if .Empty }}E{{ end }}", "S"},
        Case{"{{ if .Empty }}1{{ else if .Nil }}2{{ else if .Yes }}3{{ else }}4{{ end }}", "3"},
        Case{"{{ with .Map }}{{ .x }}{{ $.Three }}{{ end }}{{ with .Nil }}n{{ else }}m{{ end }}", "13m"},
        Case{"{{ range .List }}<{{ . }}>{{ end }}", "<a><b><c>"},
        Case{"{{ range $i, $e := .List }}{{ $i }}{{ $e }} {{ end }}", "0a 1b 2c "},
        Case{"{{ range $e := .List }}{{ $e }}{{ end }}", "abc"},
        Case{"{{ range $k, $v := .Map }}{{ $k }};{{ end }}", "x;city;"},
        Case{"{{ range .Nil }}x{{ else }}none{{ end }}{{ range 3 }}{{ . }}{{ end }}", "none012"},
        Case{"{{ range .List }}{{ if eq . \"b\" }}{{ continue }}{{ end }}{{ . }}{{ end }}", "ac"},
        Case{"{{ range .List }}{{ if eq . \"b\" }}{{ break }}{{ end }}{{ . }}{{ end }}.", "a."},
        Case{"{{ $x := 1 }}{{ if .Yes }}{{ $x = 2 }}{{ $y := 5 }}{{ $y }}{{ end }}{{ $x }}", "52"},
        Case{"{{ $x := 1 }}{{ if .Yes }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}", "21"},
        Case{"{{ range .Messages }}{{ .Role }}={{ .Content }}/{{ .ToolCallID }} {{ end }}",
             "user=q1/id7 assistant=a1/id7 user=q2/id7 "},
        Case{"{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 }}{{ .Role }}"
             "{{ if $last }}!{{ end }} {{ end }}",
             "user assistant user! "}));

INSTANTIATE_TEST_SUITE_P(
    Templates, GoTemplate,
    ::testing::Values(
        Case{"{{ define \"turn\" }}<{{ .Role }}|{{ $.Content }}>{{ end }}"
             "{{ range .Messages }}{{ template \"turn\" . }}{{ end }}",
             "<user|q1><assistant|a1><user|q2>"},
        Case{"{{ template \"t\" }}{{ define \"t\" }}[{{ . }}]{{ end }}", "[]"},
        Case{"{{ $x := 1 }}{{ block \"b\" .Map }}{{ $x := 2 }}{{ .x }}{{ $x }}{{ end }}{{ $x }}", "121"},
        Case{"{{ block `b` .System }}{{ printf \"%s %t\" . true }}{{ end }}{{ template \"b\" .Prompt }}",
             "be good truehello true"}));

INSTANTIATE_TEST_SUITE_P(
    Functions, GoTemplate,
    ::testing::Values(
        Case{"{{ and .Yes .Empty }}|{{ and .Yes .Three }}|{{ or .Empty .Three }}|{{ not .Yes }}",
             "|3|3|false"},
        Case{"{{ or .Yes (index .List 99) }}{{ and .Empty (index .List 99) }}", "true"},
        Case{"{{ eq .Three 3 }}{{ eq .Three 1 2 3 }}{{ ne .System \"x\" }}{{ lt 1 2 }}{{ ge 1 2 }}",
             "truetruetruetruefalse"},
        Case{"{{ le 2 2.5 }}{{ gt \"b\" \"a\" }}{{ eq .Nil nil }}", "truetruetrue"},
        Case{"{{ index .List 1 }}{{ index .Map \"city\" \"type\" }}", "bstring"},
        Case{"{{ len .Nil }}{{ .Absent.Field }}{{ range .Absent.List }}x{{ end }}", "0"},
        Case{"{{ len .List }}{{ len .Prompt }}{{ .List | len }}{{ slice .Prompt 1 3 }}", "353el"},
        Case{"{{ print 1 2 \"x\" 3 }}|{{ println \"y\" 4 }}", "1 2x3|y 4\n"},
        Case{"{{ printf \"%s-%d-%v-%q%%\" .Prompt .Three .Yes .System }}", "hello-3-true-\"be good\"%"},
        Case{"{{ json .Map }} {{ .Prompt | json }} {{ (index .Messages 0).Role }}",
             R"({"x":1,"city":{"type":"string"}} "hello" user)"},
        Case{"{{ .Map.city | toTypeScriptType }} {{ toTypeScriptType .Union }} {{ toTypeScriptType .Nil }}",
             "string number | null | any[] any"},
        Case{"{{ currentDate }} {{ yesterdayDate }} {{ eq currentDate \"2024-03-01\" }}",
             "2024-03-01 2024-02-29 true"}));

INSTANTIATE_TEST_SUITE_P(
    Refused, GoTemplate,
    ::testing::Values(
        Case{"a\n{{ .Prompt", "PARSE: template line 2: unclosed action"},
        Case{"{{", "PARSE: template line 1: unclosed action"},
        Case{"{{ if .X }}",
             "PARSE: template line 1: unexpected end of the template: an {{ end }} is missing"},
        Case{"{{ end }}", "PARSE: template line 1: unexpected {{ end }}"},
        Case{"{{ break }}", "PARSE: template line 1: {{ break }} outside {{ range }}"},
        Case{"{{ if 1 }}{{ define \"x\" }}{{ end }}{{ end }}",
             "PARSE: template line 1: {{ define }} inside another action"},
        Case{"{{ define x }}{{ end }}", "PARSE: template line 1: {{ define }} needs a name in quotes"},
        Case{"\n{{ template \"x\" }}\n", "PARSE: template line 2: template \"x\" is not defined"},
        Case{"{{ block \"x\" . }}{{ end }}{{ define \"x\" }}{{ end }}",
             "PARSE: template line 1: template \"x\" is defined twice"},
        Case{"{{ range 3 }}{{ block \"x\" . }}{{ break }}{{ end }}{{ end }}",
             "PARSE: template line 1: {{ break }} outside {{ range }}"},
        Case{"{{ $a := 1 }}{{ block \"x\" . }}{{ $a }}{{ end }}",
             "PARSE: template line 1: undefined variable \"$a\""},
        Case{"{{ nope 1 }}", "PARSE: template line 1: function \"nope\" is not defined"},
        Case{"{{ $x }}", "PARSE: template line 1: undefined variable \"$x\""},
        Case{"{{ .A .B }}",
             "PARSE: template line 1: arguments are passed to something that is not a function"},
        Case{"{{ 1 | .A }}",
             "PARSE: template line 1: a value is piped into something that is not a function"},
        Case{"{{ }}", "PARSE: template line 1: missing value"},
        Case{"{{ \"\\xff\" }}", "PARSE: template line 1: this escape is not supported in a string"},
        Case{"\n\n{{ .Prompt.X }}", "RENDER: template line 3: can't evaluate field X in type string"},
        Case{"{{ index .List 3 }}", "RENDER: template line 1: index: index out of range: 3"},
        Case{"{{ index .List -1 }}", "RENDER: template line 1: index: index out of range: -1"},
        Case{"{{ eq 1 \"1\" }}",
             "RENDER: template line 1: eq: incompatible types for comparison: int and string"},
        Case{"{{ len 3 }}", "RENDER: template line 1: len of type int"},
        Case{"{{ range .Prompt }}{{ end }}", "RENDER: template line 1: range cannot iterate over a string"},
        Case{"{{ printf \"%z\" 1 }}",
             "RENDER: template line 1: printf: the verb %z is not supported; %s, %v, %d, %t and %q are"}));

TEST(GoTemplateText, KnowsWhatCameFromTheRequest) {
  const auto parsed = Template::Parse("<{{ .System }}>{{ .Prompt }}{{ printf \"%s!\" .Prompt }}");
  ASSERT_TRUE(parsed);
  const std::array data = {Data()};
  const auto rendered = parsed->Render(data, false, Day());
  ASSERT_TRUE(rendered);
  EXPECT_EQ(rendered->text, "<be good>hellohello!");
  EXPECT_EQ(rendered->untrusted, (std::vector<jinja::ByteRange>{{9, 19}}));
}

TEST(GoTemplateText, EndsWhereTheResponseGoes) {
  const auto parsed = Template::Parse("U {{ .Prompt }} A {{ if .Yes }}{{ .Response }}EOT{{ end }}\nmore");
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(parsed->Uses("Response"));
  EXPECT_FALSE(parsed->Uses("Messages"));
  const std::array data = {Data(), Data()};
  EXPECT_EQ(parsed->Render(data, true, Day())->text, "U hello A EOT\nmoreU hello A ");
}

TEST(GoTemplateText, BoundsWork) {
  jinja::Limits limits;
  limits.steps_max = 100'000;
  limits.output_bytes_max = 1000;
  const auto render = [&](std::string_view source) {
    const auto parsed = Template::Parse(source, limits);
    if (!parsed) return parsed.error().message;
    const std::array data = {Data()};
    const auto rendered = parsed->Render(data, false, Day());
    return rendered ? std::string("rendered") : rendered.error().message;
  };
  EXPECT_THAT(render("{{ range 1000000000000 }}{{ end }}"), HasSubstr("more than 100000 steps"));
  EXPECT_THAT(render("{{ range 900 }}{{ $.System }}{{ end }}"), HasSubstr("line 1"));
  EXPECT_THAT(render("{{ define \"r\" }}{{ template \"r\" }}{{ end }}{{ template \"r\" }}"),
              HasSubstr("line 1"));
  std::string deep;
  for (int i = 0; i < 5000; ++i) deep += "{{ if 1 }}";
  EXPECT_THAT(render(deep), HasSubstr("nested too deeply"));
  EXPECT_THAT(render("{{ " + std::string(5000, '(') + "1"), HasSubstr("nested too deeply"));
  EXPECT_THAT(render(std::string((size_t{1} << 20) + 1, 'x')), HasSubstr("longer than"));
  EXPECT_THAT(render("\xff"), HasSubstr("UTF-8"));
}

std::string Declarations(int count) {
  std::string source;
  for (int i = 0; i < count; ++i) source += "{{$a" + std::to_string(i) + ":=1}}";
  return source;
}

// Comparing each variable with all before it would take 2e9 comparisons of strings, which nothing counted.
TEST(GoTemplateText, ManyVariablesAreParsedInLinearWork) {
  const std::string source = Declarations(60'000) + "{{$a7}}";
  const WorkLimit limit(2'000'000);
  EXPECT_TRUE(Template::Parse(source));
}

TEST(GoTemplateText, ParsingCountsAsWork) {
  for (const std::string& source :
       {Declarations(10'000), std::string(1'000'000, '\n'), "{{" + std::string(1'000'000, ' ') + "1}}",
        "{{ \"" + std::string(100'000, 'x') + "\" }}"}) {
    const WorkLimit limit(10'000);
    EXPECT_THROW(Template::Parse(source), WorkStopped) << source.substr(0, 10);
  }
  const std::atomic<bool> canceled = true;
  const WorkBudget budget(std::chrono::hours(1), canceled);
  EXPECT_THROW(Template::Parse(Declarations(10'000)), WorkStopped);
}

TEST(GoTemplateText, SearchesForVariablesCountAsSteps) {
  jinja::Limits limits;
  limits.steps_max = 1'000'000;
  const auto parsed =
      Template::Parse(Declarations(20'000) + "{{ range 1000 }}{{ $.System }}{{ end }}", limits);
  ASSERT_TRUE(parsed);
  const std::array data = {Data()};
  const auto rendered = parsed->Render(data, false, Day());
  ASSERT_FALSE(rendered);
  EXPECT_THAT(rendered.error().message, HasSubstr("more than 1000000 steps"));
}

TEST(GoTemplateText, AVariableEndsWithItsScope) {
  EXPECT_EQ(Render("{{ $a := 1 }}{{ if .Yes }}{{ $a := 2 }}{{ $a }}{{ end }}{{ $a }}"), "21");
  EXPECT_EQ(Render("{{ if .Yes }}{{ $a := 2 }}{{ end }}{{ $a }}"),
            "PARSE: template line 1: undefined variable \"$a\"");
  EXPECT_EQ(Render("{{ $a := 1 }}{{ define \"t\" }}{{ $a }}{{ end }}"),
            "PARSE: template line 1: undefined variable \"$a\"");
  EXPECT_EQ(
      Render("{{ $a := 1 }}{{ define \"t\" }}{{ $b := 2 }}{{ $b }}{{ end }}{{ template \"t\" }}{{ $a }}"),
      "21");
}

}  // namespace
}  // namespace quire::runner::gotemplate
