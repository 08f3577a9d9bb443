// Tools for tests of templates, which see their definitions only.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "api/base/request.h"

namespace quire::runner {

// `list`: an array of definitions, or null.
std::vector<api::Tool> ToolsDefinedBy(const nlohmann::ordered_json& list);

}  // namespace quire::runner
