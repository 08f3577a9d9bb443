// Classes of characters that regular expressions name, and letters of both cases.
#pragma once

#include <optional>
#include <string_view>

#include "runner/constraint/code_points.h"

namespace quire::runner::constraint {

CodePoints DigitClass();  // \d
CodePoints WordClass();   // \w
CodePoints SpaceClass();  // \s

// A general category of Unicode: "L", "Lu", "Letter", "Uppercase_Letter", "gc=Lu". Nothing: it is not known.
std::optional<CodePoints> CategoryClass(std::string_view name);

// The set with the letters of the other case.
CodePoints WithBothCases(const CodePoints& set);

}  // namespace quire::runner::constraint
