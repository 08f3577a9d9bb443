// The methods each phase brings; FindMethods() looks through them.
#pragma once

#include <span>
#include <string_view>

#include "runner/jinja/builtins.h"

namespace quire::runner::jinja {

struct NamedMethod {
  std::string_view name;
  Method method;
};

std::span<const NamedMethod> StringMethods();      // searching, cutting, joining
std::span<const NamedMethod> StringFormMethods();  // case, classes

}  // namespace quire::runner::jinja
