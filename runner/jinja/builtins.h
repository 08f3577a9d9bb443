// The built-in filters, tests, methods and global functions, found by name when a template is parsed.
#pragma once

#include <string_view>

#include "runner/jinja/runtime.h"
#include "runner/jinja/value.h"

namespace quire::runner::jinja {

// `self` is what stands before the bar, the `is` or the dot.
using Filter = Value (*)(Runtime& runtime, const Value& self, const CallArguments& arguments);
using Test = bool (*)(Runtime& runtime, const Value& self, const CallArguments& arguments);
using Method = Value (*)(Runtime& runtime, const Value& self, const CallArguments& arguments);

// Null when there is none of that name.
Filter FindFilter(std::string_view name);
Test FindTest(std::string_view name);

// The methods of that name by the kind of their object.
struct Methods {
  Method of_string = nullptr;
  Method of_dict = nullptr;
  Method of_list = nullptr;  // lists, tuples and ranges
  bool unsafe_dict = false;  // would change a dict, list: the sandbox refuses
  bool unsafe_list = false;
};
Methods FindMethods(std::string_view name);

// A global such as range() or namespace(); nothing when there is none of that name.
std::optional<Value> FindGlobal(Runtime& runtime, std::string_view name);

}  // namespace quire::runner::jinja
