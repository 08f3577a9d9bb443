// Tools for tests, from their JSON.
#pragma once

#include <string>
#include <vector>

#include "api/base/request.h"

namespace quire::api::testing {

// `json`: an array in OpenAI's shape.
std::vector<Tool> ToolsOf(const std::string& json);

}  // namespace quire::api::testing
