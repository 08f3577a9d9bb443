// The pieces of JSON text.
//
// White space is bounded, so that a model cannot go on with it for ever: a space before ',' and ':' and after
// ':', and elsewhere a blank or one line break with an indentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "api/json/type.h"
#include "runner/constraint/parts.h"

namespace quire::runner::constraint {

PartRef Blank();   // at most a space
PartRef Indent();  // at most a blank, or a line break and an indentation

struct Lengths {
  uint32_t min = 0;
  std::optional<uint32_t> max = {};
};

inline constexpr uint32_t kCharactersMax = 1000;  // of strings whose characters are counted

// A string with its quotes, of so many characters; of more than kCharactersMax none. REQUIRES: min <=
// kCharactersMax.
PartRef JsonString(Lengths lengths);
// The same, every text in one way: as DumpJson() does.
PartRef PlainJsonString(Lengths lengths);
// A string of exactly this text, written as DumpJson() does.
PartRef JsonStringOf(std::string_view text);
// How a text writes what JSON has words for.
struct Words {
  std::string_view null = "null";
  std::string_view yes = "true";
  std::string_view no = "false";
};
inline constexpr Words kPythonWords = {"None", "True", "False"};

// Exactly this value, members in its order.
PartRef JsonValueOf(const api::Json& value, const Words& words = {});

// -0 is no integer here; at most 18 digits, so that every one fits 64 bits.
PartRef AnyInteger();
// With a fraction and an exponent that keep it within a float64.
PartRef AnyNumber();

// Any value; its objects and arrays are rules of the book.
struct AnyJson {
  explicit AnyJson(RuleBook& rules, const Words& words = {});
  PartRef value;
  PartRef object;
  PartRef array;
};

// '{' or '[' and what follows up to the matching bracket. `key` is a string with its quotes.
PartRef Member(PartRef key, PartRef value);
PartRef MemberSeparator();  // ',' and the space around it

// A document: the value, with at most a blank or a line break and a space on either side.
PartRef Document(PartRef value);

}  // namespace quire::runner::constraint
