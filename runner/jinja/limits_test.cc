// Hostile templates end in an error: none hangs, overflows the stack or takes memory beyond its bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/jinja/template.h"

namespace quire::runner::jinja {
namespace {

using testing::HasSubstr;

std::string Repeat(std::string_view unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

std::string MessageOf(const std::string& source, const Limits& limits = {}) {
  const auto parsed = Template::Parse(source, limits);
  if (!parsed) return parsed.error().message;
  const auto rendered = parsed->Render(Value());
  return rendered ? "rendered " + std::to_string(rendered->size()) + " bytes" : rendered.error().message;
}

Limits Small() {
  Limits limits;
  limits.memory_bytes_max = 1 << 20;
  limits.output_bytes_max = 1 << 16;
  limits.steps_max = 1'000'000;
  return limits;
}

TEST(JinjaLimits, NestedSourceIsRefused) {
  const int deep = 20'000;
  for (const std::string& source : {
           "{{ " + Repeat("(", deep) + "1" + Repeat(")", deep) + " }}",
           "{{ " + Repeat("[", deep) + Repeat("]", deep) + " }}",
           "{{ " + Repeat("{1:", deep) + "1" + Repeat("}", deep) + " }}",
           "{{ " + Repeat("-", deep) + "1 }}",
           "{{ " + Repeat("- ", deep) + "1 }}",
           "{{ " + Repeat("not ", deep) + "1 }}",
           "{{ x" + Repeat(".a", deep) + " }}",
           "{{ x" + Repeat("[0]", deep) + " }}",
           "{{ x" + Repeat("()", deep) + " }}",
           "{{ x" + Repeat("[x", deep) + Repeat("]", deep) + " }}",
           "{{ x" + Repeat("|e", deep) + " }}",
           "{{ 1" + Repeat("+1", deep) + " }}",
           "{{ 1" + Repeat("**1", deep) + " }}",
           "{{ 1" + Repeat(" if 1 else 1", deep) + " }}",
           "{{ 1" + Repeat(" if 1", deep) + " }}",
           "{{ x" + Repeat(" is eq [x", deep) + Repeat("]", deep) + " }}",
           Repeat("{% if 1 %}", deep) + Repeat("{% endif %}", deep),
           Repeat("{% for x in y %}", deep) + Repeat("{% endfor %}", deep),
           Repeat("{% macro m() %}", deep) + Repeat("{% endmacro %}", deep),
           "{% set " + Repeat("(", deep) + "a" + Repeat(")", deep) + " = 1 %}",
       }) {
    EXPECT_THAT(MessageOf(source), HasSubstr("nested too deeply")) << source.substr(0, 40);
  }
}

TEST(JinjaLimits, FlatSourceIsNotNested) {
  const int many = 5000;
  EXPECT_EQ(MessageOf("{{ 1" + Repeat(" and 1", many) + " }}"), "rendered 1 bytes");
  EXPECT_EQ(MessageOf("{{ 1" + Repeat(" ~ 1", many) + " }}"), "rendered 5001 bytes");
  EXPECT_EQ(MessageOf("{% if 0 %}" + Repeat("{% elif 0 %}", many) + "{% else %}x{% endif %}"),
            "rendered 1 bytes");
  EXPECT_EQ(MessageOf(Repeat("{{ 1 }}", many)), "rendered 5000 bytes");
}

TEST(JinjaLimits, LongSourceIsRefused) {
  Limits limits;
  limits.source_bytes_max = 10;
  EXPECT_THAT(MessageOf("12345678901", limits), HasSubstr("longer than 10 bytes"));
  EXPECT_EQ(MessageOf("1234567890", limits), "rendered 10 bytes");
}

TEST(JinjaLimits, RunawayRecursionEnds) {
  for (const char* source : {
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
           "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
           "{% macro m() %}{% for x in [1] %}{% set y %}{{ m() }}{% endset %}{% endfor %}{% endmacro %}{{ "
           "m() }}",
           "{% macro m() %}{% filter upper %}{{ [{'a': (1, m())}]|map('length')|list }}{% endfilter %}{% "
           "endmacro %}"
           "{{ m() }}",
       }) {
    EXPECT_THAT(MessageOf(source), HasSubstr("recurses deeper")) << source;
  }
}

TEST(JinjaLimits, BigValuesAreRefusedBeforeTheyAreMade) {
  for (const char* source : {
           "{{ 'a' * 10**9 }}",
           "{{ 'a' * 9223372036854775807 }}",
           "{{ [1] * 10**9 }}",
           "{{ [1] * 9223372036854775807 }}",
           "{{ 'a\nb'|indent(10**12) }}",
           "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s "
           "%}"
           "{% endfor %}",
           "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(s='aaaa') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('a', ns.s) "
           "%}"
           "{% endfor %}",
           "{% set ns = namespace(s='aaaa') %}{% for i in range(100) %}{% set ns.s = ns.s.join(ns.s) %}{% "
           "endfor %}",
           "{% set ns = namespace(s=['aaaa']) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% "
           "endfor %}"
           "{% set t = ns.s|string %}",
       }) {
    EXPECT_THAT(MessageOf(source, Small()), HasSubstr("bytes of memory")) << source;
  }
  EXPECT_THAT(MessageOf("{{ range(10**9) }}"), HasSubstr("Range too big"));
  EXPECT_THAT(MessageOf("{{ range(-9223372036854775807, 9223372036854775807) }}"),
              HasSubstr("Range too big"));
  EXPECT_THAT(MessageOf("{{ [1]|tojson(indent=10**9) }}"), HasSubstr("indent is too big"));
}

TEST(JinjaLimits, DefaultsRefuseAGigabyteString) {
  for (const char* source : {
           "{% set x = 'ab' * 10**9 %}",
           "{{ 'a\nb'|indent(1000000000) }}",
           "{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s "
           "%}{% endfor %}",
       }) {
    EXPECT_THAT(MessageOf(source), HasSubstr("bytes of memory")) << source;
  }
}

TEST(JinjaLimits, OutputIsBounded) {
  EXPECT_THAT(MessageOf("{% for i in range(10000) %}0123456789{% endfor %}", Small()),
              HasSubstr("output is longer"));
  EXPECT_EQ(MessageOf("{% for i in range(6553) %}0123456789{% endfor %}", Small()), "rendered 65530 bytes");
}

TEST(JinjaLimits, StepsAreBounded) {
  for (const char* source : {
           "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
           "{% for i in range(100000) %}{% set x = i + 1 %}{% set y = x * 2 %}{% set z = y %}{% endfor %}",
           "{% set s = 'a' * 100000 %}{% for i in range(100000) %}{{ s.count('b') }}{% endfor %}",
           "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s]|tojson %}{% "
           "endfor %}",
           "{% set s = 'a' * 100000 %}{% for i in range(10000) %}{% if s.rfind('ab') %}{% endif %}{% endfor "
           "%}",
           "{% set s = 'a' * 100000 %}{% set t = 'a' * 50000 ~ 'b' %}{{ s.rfind(t) }}",
           "{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% if s.isalpha() %}{% endif %}{% endfor "
           "%}",
           "{% set l = range(10000)|list %}{% for i in range(10000) %}{% if l == l %}{% endif %}{% endfor %}",
           "{% set l = range(20000)|list %}{% set q = l|map('string')|unique|list %}",
           "{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"
           "{{ ns.s == ns.s }}",
       }) {
    EXPECT_THAT(MessageOf(source, Small()), testing::AnyOf(HasSubstr("steps"), HasSubstr("bytes of memory")))
        << source;
  }
}

std::string Numbered(int count, std::string_view separator, std::string_view before, std::string_view after) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += i == 0 ? "" : separator;
    text.append(before).append(std::to_string(i)).append(after);
  }
  return text;
}

// A scope, a namespace and the names of arguments are searched one by one.
TEST(JinjaLimits, SearchesForNamesCountAsSteps) {
  const int many = 8'000;
  const std::string parameters = Numbered(many, ",", "a", "");
  std::string backwards;
  for (int i = many; i-- > 0;) backwards += "a" + std::to_string(i) + "=1,";
  for (const std::string& source : {
           "{% for i in [1] %}" + Numbered(many, "", "{% set a", " = 1 %}") + "{% endfor %}",
           "{% macro m() %}" + Numbered(many, "", "{% set a", " = 1 %}") + "{% for i in range(2000) %}{{ a" +
               std::to_string(many - 1) + " }}{% endfor %}{% endmacro %}{{ m() }}",
           "{% set ns = namespace(" + Numbered(many, ",", "a", "=1") +
               ") %}{% for i in range(3000) %}{{ ns.a" + std::to_string(many - 1) + " }}{% endfor %}",
           "{% macro m(" + parameters + ") %}{% endmacro %}{{ m(" + backwards + ") }}",
       }) {
    EXPECT_THAT(MessageOf(source, Small()), HasSubstr("steps")) << source.substr(0, 60);
  }
}

TEST(JinjaLimits, AMappingOfManyKeysCanBeSpread) {
  std::vector<std::pair<std::string, Value>> entries;
  for (int i = 0; i < 200'000; ++i) entries.emplace_back("k" + std::to_string(i), Value(int64_t{i}));
  const auto parsed = Template::Parse("{% macro m(x) %}{{ kwargs|length }}{% endmacro %}{{ m(x=1, **d) }}");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed->Render(Value::MakeDict({{"d", Value::MakeDict(std::move(entries))}})), "200000");
}

TEST(JinjaLimits, ValuesDoNotNestWithoutBound) {
  for (const char* step : {"[ns.x]", "{'a': ns.x}", "(ns.x,)", "[ns.x]|map('list')"}) {
    const std::string source =
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = " + std::string(step) +
        " %}{% endfor %}";
    EXPECT_THAT(MessageOf(source), testing::AnyOf(HasSubstr("nested deeper"), HasSubstr("rendered 0 bytes")))
        << step;
  }
  EXPECT_THAT(
      MessageOf(
          "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("nested deeper"));
}

// A chain of namespaces is as deep as it is long, and may close into a ring; both are freed without
// recursion.
TEST(JinjaLimits, NamespacesChainAndRing) {
  EXPECT_EQ(MessageOf("{% set ns = namespace(x=none) %}{% for i in range(100000) %}"
                      "{% set ns.x = namespace(x=ns.x) %}{% endfor %}"),
            "rendered 0 bytes");
  EXPECT_EQ(
      MessageOf("{% set a = namespace() %}{% set b = namespace(x=[a]) %}{% set a.x = b %}{% set a.y = a %}"
                "{{ a is defined }}"),
      "rendered 4 bytes");
}

TEST(JinjaLimits, ScopesKeptByMacrosAreCharged) {
  EXPECT_THAT(MessageOf("{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% endfor %}", Small()),
              HasSubstr("bytes of memory"));
}

TEST(JinjaLimits, MemoryIsGivenBack) {
  // Each round makes and drops 100 kB; a megabyte is enough for all of them.
  Limits limits = Small();
  limits.steps_max = 100'000'000;
  EXPECT_EQ(MessageOf("{% for i in range(1000) %}{% set x = 'a' * 100000 %}{% endfor %}", limits),
            "rendered 0 bytes");
}

TEST(JinjaLimits, LongConversationsFit) {
  std::vector<Value> messages;
  for (int i = 0; i < 100'000; ++i) {
    messages.push_back(
        Value::MakeDict({{"role", Value::String(i % 2 == 0 ? "user" : "assistant")},
                         {"content", Value::String("message " + std::to_string(i), Trust::kRequest)}}));
  }
  const Value variables = Value::MakeDict({{"messages", Value::MakeList(std::move(messages))}});
  const auto parsed = Template::Parse(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] | trim + '<|im_end|>\n' }}{% "
      "endfor %}");
  ASSERT_TRUE(parsed.has_value());
  const auto rendered = parsed->RenderTracked(variables);
  ASSERT_TRUE(rendered.has_value()) << rendered.error().message;
  EXPECT_EQ(rendered->untrusted.size(), 100'000U);
}

}  // namespace
}  // namespace quire::runner::jinja
