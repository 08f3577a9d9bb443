// Formatting into a pattern: "%s" % x and "{}".format(x), with Python's conversions.
#pragma once

#include <cstdint>
#include <string>

#include "runner/jinja/runtime.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

// pattern % arguments; a tuple is several arguments, a dict is for "%(name)s". REQUIRES: pattern is a string.
Value FormatPercent(Runtime& runtime, const Value& pattern, const Value& arguments);
// pattern.format(...). REQUIRES: pattern is a string.
Value FormatBraces(Runtime& runtime, const Value& pattern, const CallArguments& arguments);

// One conversion, of either kind of pattern.
struct Conversion {
  char type = '\0';
  int64_t width = 0;       // code points
  int64_t precision = -1;  // none when negative
  std::string fill = " ";  // one code point
  char align = '\0';       // < > ^ =, or the kind's own when not given
  char sign = '-';         // - + or space
  char grouping = '\0';    // , or _ between thousands
  bool alternate = false;  // #
  bool zero = false;
};
// Appends text cut to the precision and padded to the width.
void AppendConverted(TextBuilder& out, const Text& text, const Conversion& style);
// Appends a number by style.type (b c d o x X n e E f F g G %, or none). Raises on a type that does not fit
// it.
void AppendConverted(TextBuilder& out, const Value& number, Conversion style);

}  // namespace quire::runner::jinja
