// Literals, operators, subscripts and what is undefined; expectations are those of Jinja 3.1.
#include <gtest/gtest.h>

#include "runner/jinja/testing/rendering.h"

namespace quire::runner::jinja {
namespace {

constexpr Rendering kJinjaLiteralExpressions[] = {
    {"1", "1"},
    {"-1", "-1"},
    {"1.0", "1.0"},
    {"1e16", "1e+16"},
    {"1e-5", "1e-05"},
    {"0.1+0.2", "0.30000000000000004"},
    {"1_000", "1000"},
    {"0x1F", "31"},
    {"0b101", "5"},
    {"0o17", "15"},
    {"1.5e3", "1500.0"},
    {"123456789012345678.0", "1.2345678901234568e+17"},
    {"1e15", "1000000000000000.0"},
    {"1e300*1e10", "inf"},
    {R"('a\nb')", "a\nb"},
    {R"("q'q")", "q'q"},
    {"'A' 'B'", "AB"},
    {R"('\x41\u00e9\U0001F44D\101\d')", R"(Aé👍A\d)"},
    {"true", "True"},
    {"True", "True"},
    {"none", "None"},
    {"None", "None"},
    {"false", "False"},
    {"[1,'a',none,true,1.5,[],{}]", "[1, 'a', None, True, 1.5, [], {}]"},
    {"(1,)", "(1,)"},
    {"(1,2)", "(1, 2)"},
    {"()", "()"},
    {"1,2", "(1, 2)"},
    {R"(['it\'s', 'say "x"', 'both \' "'])", R"(["it's", 'say "x"', 'both \' "'])"},
    {R"(['\n\t\\ \x07 é 👍 \u200d'])", R"(['\n\t\\ \x07 é 👍 \u200d'])"},
    {"d", "{'b': 1, 'a': 'x', 'items': [1]}"},
    {"ms",
     "[{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': None}, {'role': 'user', "
     "'content': 'b'}]"},
    {"n", "None"},
    {"undefd", ""},
    {"[undefd]", "[Undefined]"},
    {"{'a':1, 'a':2}", "{'a': 2}"},
    {"{1:'x', 1.0:'y', true:'z'}", "{1: 'z'}"},
    {"{}", "{}"},
    {"[]", "[]"},
};

TEST(JinjaLiteral, Expressions) { CheckExpressions(kJinjaLiteralExpressions); }

constexpr Rendering kJinjaLiteralTemplates[] = {
    {"{{ {'a':1,'b':[1,2],'c':{'d':'e'}} }}", "{'a': 1, 'b': [1, 2], 'c': {'d': 'e'}}"},
};

TEST(JinjaLiteral, Templates) { CheckTemplates(kJinjaLiteralTemplates); }

constexpr Rendering kJinjaLiteralBadExpressions[] = {
    {"{'a'}", "unexpected '}'"},
};

TEST(JinjaLiteral, BadExpressions) { CheckFailingExpressions(kJinjaLiteralBadExpressions); }

constexpr Rendering kJinjaOperatorExpressions[] = {
    {"1+2*3-4/2", "5.0"},
    {"7//2", "3"},
    {"-7//2", "-4"},
    {"7%3", "1"},
    {"-7%3", "2"},
    {"7%-3", "-2"},
    {"2**10", "1024"},
    {"2**-1", "0.5"},
    {"-2**2", "4"},
    {"2**3**2", "64"},
    {"7.5//2", "3.0"},
    {"-7.5%2", "0.5"},
    {"1/3", "0.3333333333333333"},
    {"1 ~ 'a' ~ none ~ 1.0 ~ undefd", "1aNone1.0"},
    {"'ab'*3", "ababab"},
    {"3*'x'", "xxx"},
    {"[1]*2", "[1, 1]"},
    {"'a'*-1", ""},
    {"(1,)*2", "(1, 1)"},
    {"'a' + 'b'", "ab"},
    {"[1]+[2]", "[1, 2]"},
    {"(1,)+(2,)", "(1, 2)"},
    {"true + true", "2"},
    {"true * 3", "3"},
    {"-true", "-1"},
    {"1 < 2 < 3", "True"},
    {"1 < 3 < 2", "False"},
    {"1 == 1.0", "True"},
    {"'a' < 'b'", "True"},
    {"[1,2] < [1,3]", "True"},
    {"1 != '1'", "True"},
    {"none == none", "True"},
    {"true == 1", "True"},
    {"(1,2) == [1,2]", "False"},
    {"1 in xs", "True"},
    {"9 not in xs", "True"},
    {"'ell' in s", "True"},
    {"'b' in d", "True"},
    {"'z' in d", "False"},
    {"not 1 in xs", "False"},
    {"1 in undefd", "False"},
    {"1 and 0", "0"},
    {"0 or 'x'", "x"},
    {"not 0", "True"},
    {"'' or none or []", "[]"},
    {"1 and 2 and 3", "3"},
    {"not not 1", "True"},
    {"'y' if t else 'n'", "y"},
    {"'y' if n", ""},
    {"'a' if 0 else 'b' if 0 else 'c'", "c"},
    {"-i", "-7"},
    {"+i", "7"},
    {"-f", "-1.5"},
    {"- -3", "3"},
    {"5 if true else 6 ~ 'x'", "5"},
};

TEST(JinjaOperator, Expressions) { CheckExpressions(kJinjaOperatorExpressions); }

constexpr Rendering kJinjaOperatorBadExpressions[] = {
    {"'a' + 1", R"(can only concatenate str (not "int") to str)"},
    {"[1] + (2,)", R"(can only concatenate list (not "tuple") to list)"},
    {"1 + 'a'", "unsupported operand type(s) for +: 'int' and 'str'"},
    {"n + 'a'", "unsupported operand type(s) for +: 'NoneType' and 'str'"},
    {"1/0", "division by zero"},
    {"1//0", "division by zero"},
    {"1%0", "division by zero"},
    {"1.0/0", "division by zero"},
    {"1 < 'a'", "'<' not supported between instances of 'int' and 'str'"},
    {"n < 1", "'<' not supported between instances of 'NoneType' and 'int'"},
    {"[] < ()", "'<' not supported between instances of 'list' and 'tuple'"},
    {"1 in n", "argument of type 'NoneType' is not iterable"},
    {"1 in 'abc'", "'in <string>' requires string as left operand, not int"},
    {"xs in d", "unhashable type: 'list'"},
    {"('y' if 0).x",
     "the inline if-expression on line 1 evaluated to false and no else section was defined."},
    {"-xs|length", "bad operand type for unary -: 'list'"},
    {"-s", "bad operand type for unary -: 'str'"},
};

TEST(JinjaOperator, BadExpressions) { CheckFailingExpressions(kJinjaOperatorBadExpressions); }

constexpr Rendering kJinjaSubscriptExpressions[] = {
    {"xs[0]", "3"},
    {"xs[-1]", "2"},
    {"xs[5]", ""},
    {"xs.0", "3"},
    {"xs['0']", ""},
    {"s[0]", "H"},
    {"s[-1]", "d"},
    {"u[1]", "ü"},
    {"u[-1]", "👍"},
    {"xs[1:]", "[1, 2]"},
    {"xs[:-1]", "[3, 1]"},
    {"xs[::-1]", "[2, 1, 3]"},
    {"xs[::2]", "[3, 2]"},
    {"xs[-2:]", "[1, 2]"},
    {"xs[5:]", "[]"},
    {"xs[2:0:-1]", "[2, 1]"},
    {"s[1:4]", "ell"},
    {"s[::-1]", "dlroW olleH"},
    {"s[:-3]", "Hello Wo"},
    {"u[::-1]", "👍 hcirüZ"},
    {"u[-3:]", "h 👍"},
    {"u[2:4]", "ri"},
    {"s[10:2]", ""},
    {"(1,2,3)[1:]", "(2, 3)"},
    {"d.b", "1"},
    {"d['b']", "1"},
    {"d.zz", ""},
    {"d['zz']", ""},
    {"d['items']", "[1]"},
    {"nest.a.b[1].c", "deep"},
    {"nest['a']['b'][0]", "1"},
    {"n.x", ""},
    {"n['x']", ""},
    {"i.x", ""},
    {"i[0]", ""},
    {"d[xs]", ""},
    {"s['upper']()", "HELLO WORLD"},
    {"xs[true]", "1"},
    {"xs[1.0]", ""},
    {"range(10)[2:8:3]", "range(2, 8, 3)"},
    {"range(10)[-1]", "9"},
    {"xs[1,2]", ""},
    {"xs[-9223372036854775807:9223372036854775807]", "[3, 1, 2]"},
    {"xs[::-9223372036854775807]", "[2]"},
};

TEST(JinjaSubscript, Expressions) { CheckExpressions(kJinjaSubscriptExpressions); }

constexpr Rendering kJinjaSubscriptBadExpressions[] = {
    {"xs[::0]", "slice step cannot be zero"},
    {"xs['a':]", "slice indices must be integers or None"},
    {"n[1:]", "'NoneType' object cannot be sliced"},
    {"d[1:]", "'dict' object cannot be sliced"},
    {"undefd[1:]", "'undefd' is undefined"},
    {"undefd.x", "'undefd' is undefined"},
    {"d.zz.y", "'dict object' has no attribute 'zz'"},
    {"n.x.y", "'None' has no attribute 'x'"},
    {"undefd[0]", "'undefd' is undefined"},
};

TEST(JinjaSubscript, BadExpressions) { CheckFailingExpressions(kJinjaSubscriptBadExpressions); }

constexpr Rendering kJinjaUndefinedExpressions[] = {
    {"undefd ~ 'x'", "x"},          {"undefd|length", "0"},
    {"undefd|list", "[]"},          {"undefd|default('q')", "q"},
    {"undefd|upper", ""},           {"undefd == undefd2", "True"},
    {"undefd == none", "False"},    {"undefd is undefined", "True"},
    {"undefd is sequence", "True"}, {"undefd is iterable", "True"},
    {"undefd is mapping", "False"}, {"undefd is string", "False"},
    {"undefd is none", "False"},    {"undefd is callable", "True"},
    {"undefd is number", "False"},  {"undefd in [1]", "False"},
    {"'a' in undefd", "False"},     {"1 if undefd else 2", "2"},
    {"d.get(undefd)", "None"},      {"undefd|map('upper')|list", "[]"},
};

TEST(JinjaUndefined, Expressions) { CheckExpressions(kJinjaUndefinedExpressions); }

constexpr Rendering kJinjaUndefinedTemplates[] = {
    {"{% for x in undefd %}x{% else %}none{% endfor %}", "none"},
    {"{{ undefd|join(',') }}|{{ undefd|first }}|{{ undefd|sort }}|{{ undefd|items|list "
     "}}|{{undefd|trim}}|",
     "||[]|[]||"},
};

TEST(JinjaUndefined, Templates) { CheckTemplates(kJinjaUndefinedTemplates); }

constexpr Rendering kJinjaUndefinedBadExpressions[] = {
    {"undefd + 'x'", "'undefd' is undefined"},
    {"undefd()", "'undefd' is undefined"},
    {"s.nope()", "'str object' has no attribute 'nope'"},
    {"undefd|tojson", "Object of type Undefined is not JSON serializable"},
    {"undefd|int", "'undefd' is undefined"},
    {"undefd < 1", "'undefd' is undefined"},
    {"-undefd", "'undefd' is undefined"},
    {"undefd|first.x", "No filter named 'first.x'."},
    {"undefd in 'abc'", "'undefd' is undefined"},
    {"undefd|abs", "'undefd' is undefined"},
    {"undefd|float", "'undefd' is undefined"},
    {"undefd|dictsort", "'undefd' is undefined"},
    {"undefd|indent", "'undefd' is undefined"},
    {"undefd is divisibleby 2", "'undefd' is undefined"},
    {"undefd % 2", "'undefd' is undefined"},
};

TEST(JinjaUndefined, BadExpressions) { CheckFailingExpressions(kJinjaUndefinedBadExpressions); }

}  // namespace
}  // namespace quire::runner::jinja
