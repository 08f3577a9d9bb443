// Which bytes of the output came from the request. "U" below is a variable "<u>" of Trust::kRequest;
// expectations show untrusted stretches in [brackets].
#include <gtest/gtest.h>

#include <string>

#include "runner/jinja/json_reader.h"
#include "runner/jinja/template.h"
#include "runner/jinja/testing/rendering.h"

namespace quire::runner::jinja {
namespace {

std::string Marked(const TrackedText& tracked) {
  std::string marked;
  ForEachRun(tracked.text, tracked.untrusted, [&](std::string_view run, Trust trust) {
    marked += trust == Trust::kRequest ? "[" + std::string(run) + "]" : std::string(run);
  });
  return marked;
}

std::string RenderMarked(std::string_view source) {
  const auto parsed = Template::Parse(source);
  if (!parsed) return "error: " + parsed.error().message;
  const Value variables = Value::MakeDict({
      {"U", Value::String("<u>", Trust::kRequest)},
      {"L", Value::String("ab\n\ncd", Trust::kRequest)},
      {"W", Value::String("  éa B ", Trust::kRequest)},
      {"E", Value::String("", Trust::kRequest)},
      {"D", JsonReader(Trust::kRequest).Read(R"({"k": "v", "n": [1, true]})").value()},
      {"N", JsonReader(Trust::kRequest).Read("[1, 2.5, null]").value()},
  });
  const auto tracked = parsed->RenderTracked(variables);
  return tracked ? Marked(*tracked) : "error: " + tracked.error().message;
}

constexpr Rendering kTracked[] = {
    // Printing and joining.
    {"a{{ U }}b", "a[<u>]b"},
    {"{{ U }}{{ U }}", "[<u><u>]"},
    {"{{ 'x' + U + 'y' }}", "x[<u>]y"},
    {"{{ 'x' ~ U ~ 1 }}", "x[<u>]1"},
    {"{{ E }}x", "x"},
    {"{{ [U, 'x', U]|join('-') }}", "[<u>]-x-[<u>]"},
    {"{{ '-'.join([U, 'x']) }}", "[<u>]-x"},
    {"{{ ['a', 'b']|join(U) }}", "a[<u>]b"},
    {"{{ U * 2 }}", "[<u><u>]"},
    {"{{ ('a' + U) * 2 }}", "a[<u>]a[<u>]"},
    // Parts.
    {"{{ ('ab' + U + 'cd')[1:4] }}", "b[<u]"},
    {"{{ ('ab' + U)[::-1] }}", "[>u<]ba"},
    {"{{ ('a' + U)[1] }}", "[<]"},
    {"{{ ('a' + U)[0] }}", "a"},
    {"{{ W|trim }}{{ W.strip() }}", "[éa Béa B]"},
    {"{{ ('x ' + W).lstrip('x') }}", " [  éa B ]"},
    {"{{ ('t,' + U + ',t').split(',')|join('/') }}", "t/[<u>]/t"},
    {"{{ ('t,' + U).split('u')[1] }}", "[>]"},
    {"{{ L.splitlines()|join('|') }}", "[ab]||[cd]"},
    {"{{ ('a' + U).partition('<')|join('/') }}", "a/[<]/[u>]"},
    {"{% for c in 'a' + U %}{{ c }}.{% endfor %}", "a.[<].[u].[>]."},
    {"{{ ('p' + U).removeprefix('p') }}{{ U|first }}{{ U|last }}", "[<u><>]"},
    // Replacing.
    {"{{ U.replace('u', 'T') }}", "[<]T[>]"},
    {"{{ U|replace('<', '') }}", "[u>]"},
    {"{{ 'a-b'.replace('-', U) }}", "a[<u>]b"},
    {"{{ 'a-b'.replace('', U, 1) }}", "[<u>]a-b"},
    // Case.
    {"{{ ('x' + U)|upper }}{{ W.title() }}", "X[<U>  Éa B ]"},
    {"{{ ('x' + W)|capitalize }}", "X[  éa b ]"},
    {"{{ ('a ' + U)|title }}", "A [<U>]"},
    // Padding and layout.
    {"{{ L|indent(2) }}", "[ab]\n\n  [cd]"},
    // Formatting.
    {"{{ U|e }}", "[&lt;u&gt;]"},
    {"{{ U|safe }}{{ U|string }}{{ U|default('x') }}", "[<u><u><u>]"},
    // JSON and repr: a container that holds anything of the request is of the request as a whole.
    {"{{ U|tojson }}", "\"[<u>]\""},
    {"{{ D|tojson }}", "[{\"k\": \"v\", \"n\": [1, true]}]"},
    {"a{{ {'t': U}|tojson(indent=1) }}b", "a[{\n \"t\": \"<u>\"\n}]b"},
    {"a{{ ['t', {'x': 1}]|tojson }}", "a[\"t\", {\"x\": 1}]"},
    {"{{ D }}{{ [U] }}", "[{'k': 'v', 'n': [1, True]}['<u>']]"},
    {"{{ ['t'] }}{{ N }}", "['t'][1, 2.5, None]"},
    {"{{ 'x' ~ [U] ~ 'y' }}", "x[['<u>']]y"},
    // Values taken from containers, keys too.
    {"{% for k, v in D.items() %}{{ k }}={{ v }};{% endfor %}", "[k]=[v];[n]=[1, True];"},
    {"{{ D.k }}{{ D['k'] }}{{ D.get('k') }}{{ D|list|join }}", "[vvvkn]"},
    {"{{ [{'a': U}]|map(attribute='a')|join }}", "[<u>]"},
    {"{{ [U]|map('upper')|list|first }}", "[<U>]"},
    {"{{ {'k': 'trusted'}[D|first] }}", "trusted"},
    // Captured output.
    {"{% set x %}a{{ U }}{% endset %}{{ x }}b", "a[<u>]b"},
    {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(U) }}", "([<u>])"},
    {"{% filter upper %}a{{ U }}b{% endfilter %}", "A[<U>]B"},
    {"{% set ns = namespace(t='') %}{% for i in [1, 2] %}{% set ns.t = ns.t + 'a' + U %}{% endfor %}{{ ns.t "
     "}}",
     "a[<u>]a[<u>]"},
    {"{% set x | upper %}a{{ U }}{% endset %}{{ x }}", "A[<U>]"},
    // Trust of what is compared does not matter.
    {"{{ 'same' if U == '<u>' }}{{ 'in' if '<u>' in [U] }}", "samein"},
    // Numbers say nothing that a template does not.
    {"{{ N[0] }}{{ N|length }}", "13"},
};

TEST(JinjaTrust, FollowsEveryByte) {
  for (const Rendering& row : kTracked) EXPECT_EQ(RenderMarked(row.source), row.expected) << row.source;
}

TEST(JinjaTrust, ContainersOfTheTemplateStayTrusted) {
  // Brackets in the output are the template's own here: there are no untrusted ranges at all.
  const auto parsed = Template::Parse("{{ ['t']|tojson }}{{ ['t'] }}");
  ASSERT_TRUE(parsed.has_value());
  const auto tracked = parsed->RenderTracked(Value());
  ASSERT_TRUE(tracked.has_value());
  EXPECT_EQ(tracked->text, "[\"t\"]['t']");
  EXPECT_TRUE(tracked->untrusted.empty());
}

TEST(JinjaTrust, RangesMergeAndSpread) {
  Budget budget((Limits()));
  TextBuilder out(budget);
  out.Append("ab", Trust::kRequest);
  out.Append("cd", Trust::kRequest);
  out.Append("ef");
  const size_t begin = out.size();
  out.Append("g");
  out.Append("h", Trust::kRequest);
  out.Append("i");
  out.SpreadUntrusted(begin);
  out.Append("j");
  const TextRef text = std::move(out).Finish();
  EXPECT_EQ(text->bytes(), "abcdefghij");
  EXPECT_EQ(text->untrusted(), (std::vector<ByteRange>{{0, 4}, {6, 9}}));
}

TEST(JinjaTrust, SpreadingReachesBackOnlyToItsBegin) {
  Budget budget((Limits()));
  TextBuilder out(budget);
  out.Append("ab", Trust::kRequest);
  out.Append("cd");
  out.SpreadUntrusted(2);  // nothing untrusted from there on
  const TextRef text = std::move(out).Finish();
  EXPECT_EQ(text->untrusted(), (std::vector<ByteRange>{{0, 2}}));
}

}  // namespace
}  // namespace quire::runner::jinja
