// Loops, assignments, blocks and macros; expectations are those of Jinja 3.1.
#include <gtest/gtest.h>

#include "runner/jinja/testing/rendering.h"

namespace quire::runner::jinja {
namespace {

constexpr Rendering kJinjaControlTemplates[] = {
    {"{% for x in xs %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "3,1,2"},
    {"{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first "
     "}}{{ loop.last }}{{ loop.length }};{% endfor %}",
     "1032TrueFalse3;2121FalseFalse3;3210FalseTrue3;"},
    {"{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "<3>1;3<1>2;1<2>;"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=x;items=[1];"},
    {"{% for k in d %}{{ k }}{% endfor %}{% for ch in u %}{{ ch }}.{% endfor %}", "baitemsZ.ü.r.i.c.h. .👍."},
    {"{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %}", "1234"},
    {"{% for a, (b, c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
    {"{% for x in xs if x > 1 %}{{ x }}/{{ loop.length }} {% else %}none{% endfor %}", "3/2 2/2 "},
    {"{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}", "none"},
    {"{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x "
     "}}{% endfor %}",
     "3"},
    {"{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% "
     "endfor %}",
     "33 13 23 "},
    {"{% for x in 1,2,3 %}{{ x }}{% endfor %}", "123"},
    {"{% if 0 %}a{% elif n %}b{% elif t %}c{% else %}d{% endif %}", "c"},
    {"{% if xs %}y{% endif %}{% if [] %}n{% else %}e{% endif %}", "ye"},
    {"{% set x = 1 %}{% for i in xs %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "2221"},
    {"{% set ns = namespace(x=0, y='a') %}{% for i in xs %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ "
     "ns.y }}{{ ns.z }}|{{ ns['x'] }}",
     "6a|6"},
    {"{% set ns = namespace({'a':1}, b=2) %}{{ ns.a }}{{ ns.b }}", "12"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
    {"{% set x %}block {{ i }}{% endset %}{{ x|upper }}{{ x is string }}", "BLOCK 7True"},
    {"{% set x | upper | trim %}  block {% endset %}[{{ x }}]", "[BLOCK]"},
    {"{% filter upper %}abc{{ s }}{% endfilter %}", "ABCHELLO WORLD"},
    {"{% filter replace('a','b') | upper %}aaa{% endfilter %}", "BBB"},
    {"{% if true %}{% set q = 1 %}{% endif %}{{ q }}", "1"},
    {"{% for x in xs %}{% set q = x %}{% endfor %}{{ q }}|", "|"},
    {"{% for x in xs %}{% if loop.first %}{% set q = x %}{% endif %}{{ q }},{% endfor %}", "3,,,"},
    {"{% print 1, 2 %}{% print s %}", "12Hello World"},
    {"{% generation %}a{% set zz = 1 %}{{ zz }}{% endgeneration %}{{ zz }}|", "a1|"},
    {"{% raw %}{{ x }}{% y %}{# #}{% endraw %}", "{{ x }}{% y %}{# #}"},
    {"a {%- raw -%}  x  {%- endraw -%}  b", "axb"},
    {"{# comment #}a{#- c -#} b", "ab"},
    {"{% for x in xs %}{{ x }}{% endfor %}{{ loop }}", "312"},
    {"{% for x in {'a':1}.items() %}{{ x }}{{ x[0] }}{% endfor %}", "('a', 1)a"},
    {"{% for x in xs %}{% set x = x * 2 %}{{ x }}{% endfor %}", "624"},
    {"{% set s = s ~ '!' %}{{ s }}{% set s %}{{ s }}?{% endset %}{{ s }}", "Hello World!Hello World!?"},
    {"{% set ns = namespace() %}{% set ns.l = [] %}{% for x in xs %}{% set ns.l = ns.l + [x] %}{% endfor "
     "%}{{ ns.l }}{{ ns is mapping }}{{ ns is iterable }}",
     "[3, 1, 2]FalseFalse"},
};

TEST(JinjaControl, Templates) { CheckTemplates(kJinjaControlTemplates); }

constexpr Rendering kJinjaControlBadTemplates[] = {
    {"{% for x in xs %}{{ loop.previtem.foo }}{% endfor %}", "there is no previous item"},
    {"{% for a, b in [[1,2,3]] %}{{ a }}{% endfor %}", "too many values to unpack (expected 2, got 3)"},
    {"{% for a, b in [[1]] %}{{ a }}{% endfor %}", "not enough values to unpack (expected 2, got 1)"},
    {"{% for x in n %}{% endfor %}", "'NoneType' object is not iterable"},
    {"{% for x in i %}{% endfor %}", "'int' object is not iterable"},
    {"{% for x in xs %}{{ loop(xs) }}{% endfor %}", "'LoopContext' object is not callable"},
    {"{% set d.x = 1 %}", "cannot assign attribute on non-namespace object"},
    {"{% set nope.x = 1 %}", "'nope' is undefined"},
    {"{% set a, b = [1,2,3] %}", "too many values to unpack (expected 2, got 3)"},
};

TEST(JinjaControl, BadTemplates) { CheckFailingTemplates(kJinjaControlBadTemplates); }

constexpr Rendering kJinjaMacroTemplates[] = {
    {"{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) "
     "}} {{ m() }}",
     "121 131 454 2"},
    {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1,2,x=3) }}", "(1, 2){'x': 3}"},
    {"{% macro f(n) %}{% if n > 1 %}{{ n }}{{ f(n-1) }}{% else %}1{% endif %}{% endmacro %}{{ f(5) }}",
     "54321"},
    {"{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "2"},
    {"{% macro m() %}{{ later }}{% endmacro %}{% set later = 3 %}{{ m() }}", "3"},
    {"{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "312"},
    {"{% macro outer() %}{% macro inner(q) %}[{{ q }}]{% endmacro %}{{ inner(1) }}{% endmacro %}{{ outer() "
     "}}{{ inner is defined }}",
     "[1]False"},
    {"{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}",
     "FalseFalseFalse"},
    {"{% macro m(a) %}{% set a = a ~ '!' %}{{ a }}{% endmacro %}{{ m('x') }}{{ m(*['y']) }}{{ m(**{'a':'z'}) "
     "}}",
     "x!y!z!"},
    {"{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "FalseTrue"},
    {"{% macro m() %}a{% endmacro %}{{ (m() ~ 'b')|upper }}{{ m() is string }}{{ m is callable }}",
     "ABTrueTrue"},
};

TEST(JinjaMacro, Templates) { CheckTemplates(kJinjaMacroTemplates); }

constexpr Rendering kJinjaBlockTemplates[] = {
    {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
    {"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "211"},
    {"{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "1False"},
    {"{% block head %}x{{ xs[0] }}{% endblock head %}{% block b scoped %}y{% endblock %}", "x3y"},
    {"{% macro m(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call m('b') %}in {{ xs[1] }}{% "
     "endcall %}",
     "<b>in 1</b>"},
    {"{% macro each(l) %}{% for i in l %}{{ caller(i, loop.last) }}{% endfor %}{% endmacro %}"
     "{% call(item, last) each(xs) %}{{ item }}{{ '.' if last else ',' }}{% endcall %}",
     "3,1,2."},
    {"{% for n in [{'v':1,'c':[{'v':2,'c':[{'v':3,'c':[]}]}]},{'v':4,'c':[]}] recursive %}"
     "({{ loop.depth }}{{ n.v }}{{ loop(n.c) }}){% endfor %}",
     "(11(22(33)))(14)"},
    {"{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}", "aba"},
    {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() or "
     "'' }}"
     "{{ c.current }}",
     "abbaa"},
    {"{% set l = [] %}{% for x in xs %}{% set _ = l.append(x) %}{% endfor %}{{ l }}", "[3, 1, 2]"},
    {"{% set ns = namespace(l=[]) %}{% for x in xs %}{% if ns.l.append(x * 2) %}{% endif %}{% endfor %}{{ "
     "ns.l }}",
     "[6, 2, 4]"},
    {"{% set l = [1] %}{{ l.append(2) }}{% set _ = l.extend([3, 4]) %}{{ l }}", "None[1, 2, 3, 4]"},
    {"{% set d = {'append': 'x'} %}{{ d.append }}", "x"},
};

TEST(JinjaBlocks, Templates) { CheckTemplates(kJinjaBlockTemplates); }

constexpr Rendering kJinjaMacroBadTemplates[] = {
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,2) }}", "macro 'm' takes not more than 1 argument(s)"},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "macro 'm' takes no keyword argument 'z'"},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "macro 'm' takes no keyword argument 'a'"},
    {"{{ m2() }}{% macro m2() %}{% endmacro %}", "'m2' is undefined"},
    {"{% macro inf() %}{{ inf() }}{% endmacro %}{{ inf() }}",
     "the template recurses deeper than 1500 levels"},
    {"{% macro c() %}{{ caller() }}{% endmacro %}{{ c() }}", "'caller' is undefined"},
    {"{% macro c() %}x{% endmacro %}{% call c() %}{% endcall %}",
     "macro 'c' takes no keyword argument 'caller'"},
    {"{% for x in [[]] %}{{ loop([x]) }}{% endfor %}", "'LoopContext' object is not callable"},
    {"{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}",
     "the template recurses deeper than 1500 levels"},
};

TEST(JinjaMacro, BadTemplates) { CheckFailingTemplates(kJinjaMacroBadTemplates); }

constexpr Rendering kJinjaGlobalExpressions[] = {
    {"range(3)|list", "[0, 1, 2]"},
    {"range(1,4)|list", "[1, 2, 3]"},
    {"range(5,0,-2)|list", "[5, 3, 1]"},
    {"range(0)", "range(0, 0)"},
    {"range(3)", "range(0, 3)"},
    {"range(3)|length", "3"},
    {"strftime_now('%d %b %Y %H:%M:%S %A %j %y %m %B %p %I %%')",
     "15 Jan 2026 12:34:56 Thursday 015 26 01 January PM 12 %"},
    {"strftime_now('%-d %e')", "15 15"},
    {"namespace is callable", "True"},
    {"range is defined", "True"},
};

TEST(JinjaGlobal, Expressions) { CheckExpressions(kJinjaGlobalExpressions); }

constexpr Rendering kJinjaGlobalBadExpressions[] = {
    {"cycler()", "at least one item has to be provided"},
    {"range(100001)", "Range too big. The sandbox blocks ranges larger than 100000."},
    {"range(0,1,0)", "range() arg 3 must not be zero"},
    {"range('a')", "range(): argument 'start' must be an integer, not str"},
    {"raise_exception('boom ' ~ i)", "boom 7"},
    {"raise_exception()", "raise_exception() is missing its argument 'message'"},
    {"xs()", "'list' object is not callable"},
    {"'a'()", "'str' object is not callable"},
    {"range(3,x=1)", "range() got an unexpected keyword argument 'x'"},
};

TEST(JinjaGlobal, BadExpressions) { CheckFailingExpressions(kJinjaGlobalBadExpressions); }

}  // namespace
}  // namespace quire::runner::jinja
