// Methods of strings, dicts and lists; expectations are those of Python 3.11.
#include <gtest/gtest.h>

#include "runner/jinja/testing/rendering.h"

namespace quire::runner::jinja {
namespace {

constexpr Rendering kJinjaStringMethodExpressions[] = {
    {"s.upper()", "HELLO WORLD"},
    {"s.lower()", "hello world"},
    {"s.title()", "Hello World"},
    {"s.capitalize()", "Hello world"},
    {"'ß'.upper()", "SS"},
    {"'İ'.lower()|length", "2"},
    {"'ǆx'.title()", "ǅx"},
    {"ws.strip()", "a b\n c"},
    {"ws.lstrip()", "a b\n c\t"},
    {"ws.rstrip()", "  a b\n c"},
    {"'xxaxyx'.strip('xy')", "a"},
    {"'é–é'.strip('é')", "–"},
    {"s.strip(none)", "Hello World"},
    {"s.split()", "['Hello', 'World']"},
    {"s.split('o')", "['Hell', ' W', 'rld']"},
    {"s.split('o', 1)", "['Hell', ' World']"},
    {"s.split('o', maxsplit=1)", "['Hell', ' World']"},
    {"s.rsplit('o', 1)", "['Hello W', 'rld']"},
    {"' a  b '.split()", "['a', 'b']"},
    {"' a  b '.split(' ')", "['', 'a', '', 'b', '']"},
    {"' a b c '.split(none, 1)", "['a', 'b c ']"},
    {"' a b c '.rsplit(none, 1)", "[' a b', 'c']"},
    {"''.split()", "[]"},
    {"''.split(',')", "['']"},
    {"s.split('zz')[0]", "Hello World"},
    {"'a,b,,c'.split(',')[-1]", "c"},
    {"' a b c '.split(none,0)", "['a b c ']"},
    {"s.startswith('He')", "True"},
    {"s.endswith('ld')", "True"},
    {"s.startswith(('x','H'))", "True"},
    {"s.startswith('l', 2)", "True"},
    {"s.startswith('e',1,2)", "True"},
    {"s.endswith('')", "True"},
    {"s.startswith('', 99)", "False"},
    {"s.replace('l','L')", "HeLLo WorLd"},
    {"s.replace('l','L',1)", "HeLlo World"},
    {"s.replace('','-')", "-H-e-l-l-o- -W-o-r-l-d-"},
    {"''.replace('','x')", "x"},
    {"s.replace('l','')", "Heo Word"},
    {"s.replace('', '-', 2)", "-H-ello World"},
    {"s.count('l')", "3"},
    {"s.count('')", "12"},
    {"'aaaa'.count('aa')", "2"},
    {"u.count('')", "9"},
    {"','.join(['a','b'])", "a,b"},
    {"','.join('abc')", "a,b,c"},
    {"''.join([])", ""},
    {"'-'.join(d)", "b-a-items"},
    {"s.partition(' ')", "('Hello', ' ', 'World')"},
    {"s.partition('zz')", "('Hello World', '', '')"},
    {"s.rpartition('o')", "('Hello W', 'o', 'rld')"},
    {"s.rpartition('zz')", "('', '', 'Hello World')"},
    {"lines.splitlines()", "['a', ' b', '', 'c']"},
    {"lines.splitlines(true)", R"(['a\n', ' b\n', '\n', 'c'])"},
    {"'a\r\nb\n'.splitlines()", "['a', 'b']"},
    {"''.splitlines()", "[]"},
    {"s.removeprefix('He')", "llo World"},
    {"s.removesuffix('ld')", "Hello Wor"},
    {"s.removeprefix('x')", "Hello World"},
    {"'a'.isalpha()", "True"},
    {"'1'.isdigit()", "True"},
    {"'²'.isdigit()", "True"},
    {"'a1'.isalnum()", "True"},
    {"' '.isspace()", "True"},
    {"''.isspace()", "False"},
    {"'A'.isupper()", "True"},
    {"'aB'.islower()", "False"},
    {"s.nope", ""},
    {"s.__class__", ""},
};

TEST(JinjaStringMethod, Expressions) { CheckExpressions(kJinjaStringMethodExpressions); }

constexpr Rendering kJinjaStringMethodTemplates[] = {
    {"{{ s.find('o') }}{{ s.rfind('o') }}{{ s.find('zz') }}{{ s.index('W') }}{{ u.find('ch') }}{{ "
     "u.rfind('👍') }}{{ s.find('o',5) }}{{ s.find('o',-3) }}{{ s.find('') }}{{ s.rfind('') }}{{ "
     "s.find('',99) }}{{ s.find('l',3,4)}}",
     "47-16477-1011-13"},
};

TEST(JinjaStringMethod, Templates) { CheckTemplates(kJinjaStringMethodTemplates); }

constexpr Rendering kJinjaStringMethodBadExpressions[] = {
    {"s.split('')", "empty separator"},
    {"s.startswith(1)", "first arg must be str or a tuple of str, not int"},
    {"s.startswith(['a'])", "first arg must be str or a tuple of str, not list"},
    {"s.index('zz')", "substring not found"},
    {"','.join([1])", "sequence item 0: expected str instance, int found"},
    {"','.join(n)", "'NoneType' object is not iterable"},
    {"s.upper(1)", "lower() takes at most 0 arguments (1 given)"},
    {"s.__class__.x", "'str object' has no attribute '__class__'"},
};

TEST(JinjaStringMethod, BadExpressions) { CheckFailingExpressions(kJinjaStringMethodBadExpressions); }

constexpr Rendering kJinjaDictMethodExpressions[] = {
    {"d.get('b')", "1"},
    {"d.get('zz')", "None"},
    {"d.get('zz','D')", "D"},
    {"d.keys()", "dict_keys(['b', 'a', 'items'])"},
    {"d.values()", "dict_values([1, 'x', [1]])"},
    {"d.items()", "dict_items([('b', 1), ('a', 'x'), ('items', [1])])"},
    {"d.keys()|list", "['b', 'a', 'items']"},
    {"d.values()|list", "[1, 'x', [1]]"},
    {"d.items()|list", "[('b', 1), ('a', 'x'), ('items', [1])]"},
    {"d.copy()", "{'b': 1, 'a': 'x', 'items': [1]}"},
    {"xs.append is defined", "False"},
    {"d.update", ""},
    {"xs.index(1)", "1"},
    {"xs.count(1)", "1"},
    {"(1,2).index(2)", "1"},
    {"xs.copy()", "[3, 1, 2]"},
    {"d.keys()[0]", ""},
    {"d.items()|first", "('b', 1)"},
    {"d.keys()|length", "3"},
    {"d.keys() is sequence", "False"},
    {"d.items() is iterable", "True"},
    {"'b' in d.keys()", "True"},
    {"1 in d.values()", "True"},
    {"dict(a=1,b=2)", "{'a': 1, 'b': 2}"},
    {"dict([('a',1)])", "{'a': 1}"},
    {"dict({'x':1}, y=2)", "{'x': 1, 'y': 2}"},
    {"dict(**d)", "{'b': 1, 'a': 'x', 'items': [1]}"},
    {"d.get('items')", "[1]"},
    {"d['get']('b')", "1"},
};

TEST(JinjaDictMethod, Expressions) { CheckExpressions(kJinjaDictMethodExpressions); }

constexpr Rendering kJinjaDictMethodTemplates[] = {
    {"x", "x"},
};

TEST(JinjaDictMethod, Templates) { CheckTemplates(kJinjaDictMethodTemplates); }

constexpr Rendering kJinjaDictMethodBadExpressions[] = {
    {"d.get()", "get() is missing its argument 'key'"},
    {"d.pop('b')", "access to attribute 'pop' of 'dict' object is unsafe."},
    {"d.update({})", "access to attribute 'update' of 'dict' object is unsafe."},
    {"[1].append(2)", "only lists in variables and namespaces can be extended"},
    {"xs.index(9)", "the value is not in the list"},
    {"xs.sort()", "access to attribute 'sort' of 'list' object is unsafe."},
    {"{**d}", "unexpected '**'"},
};

TEST(JinjaDictMethod, BadExpressions) { CheckFailingExpressions(kJinjaDictMethodBadExpressions); }

constexpr Rendering kJinjaDictMethodBadTemplates[] = {
    {"{% set _ = d.setdefault('x',1) %}", "access to attribute 'setdefault' of 'dict' object is unsafe."},
};

TEST(JinjaDictMethod, BadTemplates) { CheckFailingTemplates(kJinjaDictMethodBadTemplates); }

}  // namespace
}  // namespace quire::runner::jinja
