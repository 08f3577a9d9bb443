// Whitespace control and syntax errors; expectations are those of Jinja 3.1.
#include <gtest/gtest.h>

#include "runner/jinja/testing/rendering.h"

namespace quire::runner::jinja {
namespace {

constexpr Rendering kJinjaWhitespaceTemplates[] = {
    {"a\n{% if 1 %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
    {"  {% if 1 %}  \nx\n  {%- endif %}\ny", "  \nxy"},
    {"  {{ 1 }}\n  {{ 2 }}\n", "  1\n  2"},
    {"a  {%- if 1 -%}  b  {%- endif -%}  c", "abc"},
    {"  {%+ if 1 %}x{% endif +%}\ny", "  x\ny"},
    {"x\n   {# c #}\ny", "x\ny"},
    {"\n\n{{ 1 }}\n\n", "\n\n1\n"},
    {"a\r\nb\rc", "a\nb\nc"},
    {"{{- 1 -}}  x", "1x"},
    {"a {{+ 1 }}", "a 1"},
    {"{%- set x = 1 -%}\n\n  {{ x }}", "1"},
    {"\t {% if 1 %}\t\n\t x{% endif %}", "\t\n\t x"},
    {"a\n  {% if 1 %}b{% endif %}  \n c", "a\nb  \n c"},
    {"  x {% if 1 %}y{% endif %}", "  x y"},
    {"{% if 1 %}\n\n a{% endif %}\n\nb", "\n a\nb"},
    {"{#- x -#}\n a", "a"},
    {"a\u00a0\n {%- if 1 %}b{% endif %}", "ab"},
    {"{{ 'a' -}}\n\n{{ 'b' }}", "ab"},
    {"{% for x in xs -%}\n  {{ x }}\n{%- endfor %}", "312"},
    {"{% for x in xs %}\n  {{ x }}\n{% endfor %}", "  3\n  1\n  2\n"},
    {"  {%- raw %}\n x {% endraw %}\n y", "\n x  y"},
    {"{{ '{{' }}{{ '%}' }}{{ '}}' }}", "{{%}}}"},
    {"{{ {'a':{'b':1}}}}", "{'a': {'b': 1}}"},
    {"{{ {'a':{'b':1}}.a }}", "{'b': 1}"},
    {"{{-1}}", "1"},
    {"{{ 1 }}{# multi\nline #}\n{{ 2 }}", "12"},
    {"{% set x = 'a\nb' %}{{ x }}", "a\nb"},
    {"{%set x=1%}{{x}}", "1"},
    {"   {#- a -#}   \nb", "b"},
    {"a{% set x=1 %}\n\n{% set y=1 %}\nb", "a\nb"},
    {"{{ 1 }}\n{% if 1 %}\n{{ 2 }}\n{% endif %}", "1\n2\n"},
    {"x\n{% if 0 %}{% endif %}{% if 1 %}\ny{% endif %}", "x\ny"},
};

TEST(JinjaWhitespace, Templates) { CheckTemplates(kJinjaWhitespaceTemplates); }

constexpr Rendering kJinjaWhitespaceBadTemplates[] = {
    {"  {% raw +%}\na{% endraw %}", "unknown tag 'raw'"},
};

TEST(JinjaWhitespace, BadTemplates) { CheckFailingTemplates(kJinjaWhitespaceBadTemplates); }

constexpr Rendering kJinjaSyntaxBadExpressions[] = {
    {"'abc", "unexpected char '''"},
    {"(1", "unexpected '}', expected ')'"},
    {"1)", "unexpected ')'"},
    {"a b", "unexpected 'b'"},
    {"1 + ", "unexpected '}}'"},
    {"x is", "unexpected '}}'"},
    {"x|", "unexpected '}}'"},
    {"foo(a=1, 2)", "invalid syntax for function call expression"},
    {"foo(**a, b)", "invalid syntax for function call expression"},
    {"$", "unexpected char '$'"},
    {"1 is defined is true", "You cannot chain multiple tests with is"},
    {"d.1a", "unexpected 'a'"},
    {"08", "leading zeros in an integer"},
    {"a.'b'", "unexpected string"},
    {"[1,2", "unexpected '}', expected ']'"},
    {"{1:2", "unexpected '}'"},
};

TEST(JinjaSyntax, BadExpressions) { CheckFailingExpressions(kJinjaSyntaxBadExpressions); }

constexpr Rendering kJinjaSyntaxBadTemplates[] = {
    {"{{ }}", "unexpected '}}'"},
    {"{% if %}{% endif %}", "unexpected '%}'"},
    {"{% for x %}{% endfor %}", "unexpected '%}'"},
    {"{% endif %}", "unknown tag 'endif'"},
    {"{% if 1 %}", "unexpected end of template, expected 'endif'"},
    {"{{ 1", "unexpected end of template"},
    {"{% foo %}", "unknown tag 'foo'"},
    {"{# abc", "Missing end of comment tag"},
    {"{% set 1 = 2 %}", "unexpected number"},
    {"{% set true = 1 %}", "can't assign to a constant"},
    {"{% macro %}{% endmacro %}", "unexpected '%}'"},
    {"{% break %}", "'break' outside a loop"},
    {"{% raw %}abc", "Missing end of raw directive"},
    {"{% include 'x' %}", "unknown tag 'include'"},
    {"{% extends 'x' %}", "unknown tag 'extends'"},
    {"{% import 'x' as y %}", "unknown tag 'import'"},
    {"{% if 1 %}{% elif %}{% endif %}", "unexpected '%}'"},
    {"{% for x in xs %}{% endif %}", "unknown tag 'endif'"},
    {"{% macro m(a=1,b) %}{% endmacro %}", "non-default argument follows default argument"},
    {"{% call x %}{% endcall %}", "expected call"},
    {"{% with a %}{% endwith %}", "unexpected '%}'"},
    {"{% do 1 %}", "unknown tag 'do'"},
    {"{% set %}", "unexpected '%}'"},
    {"{% for x in xs %}{% else %}{% else %}{% endfor %}", "unknown tag 'else'"},
};

TEST(JinjaSyntax, BadTemplates) { CheckFailingTemplates(kJinjaSyntaxBadTemplates); }

}  // namespace
}  // namespace quire::runner::jinja
