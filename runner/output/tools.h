// A request's tools, as parsers of calls use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/request.h"

namespace quire::runner::output {

// Set of JSON types; empty = nothing is known.
using TypeSet = uint8_t;
inline constexpr TypeSet kString = 1, kNumber = 2, kBoolean = 4, kNull = 8, kObject = 16, kArray = 32;

struct Parameter {
  std::string name;
  TypeSet types = 0;
};

struct Tool {
  std::string name;
  std::vector<Parameter> parameters;  // in the schema's order
  std::map<std::string, TypeSet, std::less<>> types_by_name = {};

  TypeSet TypesOf(std::string_view parameter) const;  // of one it does not have: nothing is known
};

class Tools {
 public:
  Tools() = default;
  explicit Tools(std::span<const api::Tool> tools);

  const Tool* Find(std::string_view name) const;
  const Tool* Only() const {
    return tools_.size() == 1 ? tools_.data() : nullptr;
  }  // null: there are none, or several

 private:
  std::vector<Tool> tools_;
  std::map<std::string, size_t, std::less<>> by_name_;  // the first of each name
};

}  // namespace quire::runner::output
