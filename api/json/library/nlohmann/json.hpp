// The library's <nlohmann/json.hpp>, and how an api::Json is destroyed. Every source of the tree finds this file first.
//
// The library destroys a value with a stack of its own, which allocates: in a destructor, which cannot report it, so that a
// failing allocation would end the program.
#pragma once

#include_next <nlohmann/json.hpp>

#include "api/json/type.h"

namespace nlohmann {

// Allocates nothing. It calls itself for values within values: kJsonDepthMax bounds them.
template <>
void quire::api::Json::json_value::destroy(value_t type);

}  // namespace nlohmann
