// Errors with their lines, dicts, and rendering from several threads.
#include "runner/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "runner/jinja/testing/rendering.h"

namespace quire::runner::jinja {
namespace {

std::string RenderError(std::string_view source) {
  const auto parsed = Template::Parse(source);
  if (!parsed) return parsed.error().message;
  const auto rendered = parsed->Render(TestVariables());
  return rendered ? "rendered" : rendered.error().message;
}

TEST(JinjaTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(RenderError("a\n\n{% if %}"), "chat template line 3: unexpected '%}'");
  EXPECT_EQ(RenderError("a\n{{ 'x\ny' + }}"), "chat template line 3: unexpected '}}'");
  EXPECT_EQ(RenderError("{% for x in y %}\n\n"),
            "chat template line 2: unexpected end of template, expected 'endfor'");
  EXPECT_EQ(RenderError("a\n\n{{ nope.x }}"), "template line 3: 'nope' is undefined");
  EXPECT_EQ(RenderError("{# c\nc #}\n{% set x = 1 %}\n{{ x\n + nope }}"),
            "template line 5: 'nope' is undefined");
  EXPECT_EQ(RenderError("{% macro m() %}\n{{ 1/0 }}{% endmacro %}\n\n{{ m() }}"),
            "template line 2: division by zero");
  EXPECT_EQ(RenderError("{% macro m() %}\n{{ 1 }}{% endmacro %}\n\n{{ m() + 1 }}"),
            "template line 4: can only concatenate str (not \"int\") to str");
}

TEST(JinjaTemplate, TheTemplatesOwnMessageStandsAlone) {
  const auto parsed = Template::Parse("\n{{ raise_exception('Roles must alternate: ' ~ i) }}");
  ASSERT_TRUE(parsed.has_value());
  const auto rendered = parsed->Render(TestVariables());
  ASSERT_FALSE(rendered.has_value());
  EXPECT_EQ(rendered.error().code, api::ErrorCode::kInvalidArgument);
  EXPECT_EQ(rendered.error().message, "Roles must alternate: 7");
}

TEST(JinjaTemplate, SourceMustBeUtf8) {
  const auto parsed = Template::Parse("a\xFF");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, api::ErrorCode::kBadModel);
  EXPECT_FALSE(Template::Parse("{{ '\xC3' }}").has_value());
  EXPECT_FALSE(Template::Parse("\xED\xA0\x80").has_value()) << "a surrogate";
  EXPECT_FALSE(Template::Parse(R"({{ '\ud83d' }})").has_value()) << "a surrogate";
}

TEST(JinjaTemplate, VariablesHideGlobals) {
  const auto parsed = Template::Parse("{{ range }}{{ namespace is callable }}");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->Render(Value::MakeDict({{"range", Value(int64_t{5})}})).value(), "5True");
  EXPECT_EQ(Template::Parse("{{ x }}|")->Render(Value()).value(), "|");
}

TEST(JinjaTemplate, IntegersOverflowIntoErrors) {
  for (const char* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 9223372036854775807 * 2 }}",
        "{{ 2**63 }}", "{{ (-9223372036854775807 - 1) // -1 }}", "{{ -(-9223372036854775807 - 1) }}",
        "{{ (-9223372036854775807 - 1)|abs }}", "{{ 1e20|int }}"}) {
    EXPECT_THAT(RenderOrError(source), testing::HasSubstr("beyond 64 bits")) << source;
  }
  EXPECT_EQ(RenderOrError("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(RenderOrError("{{ -9223372036854775807 - 1 }}"), "-9223372036854775808");
}

TEST(JinjaDict, FindsAmongMany) {
  std::vector<Value::Entry> entries;
  for (int64_t i = 0; i < 100; ++i) {
    entries.emplace_back(Value(i), Value(i * 2));
    entries.emplace_back(Value::String("k" + std::to_string(i)), Value(i * 3));
  }
  entries.emplace_back(Value(), Value(true));
  entries.emplace_back(Value(7.0), Value::String("seven"));  // the key 7 again: its place is kept
  const Dict dict(std::move(entries), Charge());
  EXPECT_EQ(dict.entries().size(), 201U);
  for (int64_t i = 0; i < 100; ++i) {
    if (i != 7) {
      EXPECT_EQ(dict.Find(Value(i))->as_int(), i * 2);
    }
    EXPECT_EQ(dict.Find("k" + std::to_string(i))->as_int(), i * 3);
  }
  EXPECT_EQ(dict.Find(Value(int64_t{7}))->as_view(), "seven");
  EXPECT_EQ(dict.entries()[14].first.as_int(), 7);
  EXPECT_EQ(dict.Find(Value(true))->as_int(), 2) << "true is 1";
  EXPECT_TRUE(dict.Find(Value())->as_bool());
  EXPECT_EQ(dict.Find("k100"), nullptr);
  EXPECT_EQ(dict.Find(Value(0.5)), nullptr);
}

TEST(JinjaTemplate, RendersOnManyThreadsAtOnce) {
  const auto parsed = Template::Parse(
      "{% set ns = namespace(n=0) %}{% macro m(x) %}<{{ x }}>{% endmacro %}"
      "{% for x in xs %}{% set ns.n = ns.n + x %}{{ m(x ~ s) }}{% endfor %}{{ ns.n }}{{ d|tojson }}");
  ASSERT_TRUE(parsed.has_value());
  const Value variables = TestVariables();
  const std::string expected = parsed->Render(variables).value();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        if (parsed->Render(variables) != expected) ++wrong[i];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace quire::runner::jinja
