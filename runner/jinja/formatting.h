// Python's two ways to format text, and padding.
#pragma once

#include <span>

#include "runner/jinja/runtime.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

// "%s is %d" % values: a tuple's items, a dict's members for "%(name)s", or one value.
Value FormatPercent(Runtime& runtime, const Value& pattern, const Value& values);
// "{} {name:>5}".format(...). Fields have no attributes or elements.
Value FormatBraces(Runtime& runtime, const Value& pattern, const CallArguments& arguments);

enum class Align : char { kLeft = '<', kRight = '>', kCenter = '^' };
// The text with `fill`, one character, up to `width` code points.
Value Pad(Runtime& runtime, const Value& text, int64_t width, Align align, std::string_view fill = " ");

}  // namespace quire::runner::jinja
