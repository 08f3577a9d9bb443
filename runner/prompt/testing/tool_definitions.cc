#include "runner/prompt/testing/tool_definitions.h"

#include <nlohmann/json.hpp>

namespace quire::runner {

std::vector<api::Tool> ToolsDefinedBy(const nlohmann::ordered_json& list) {
  std::vector<api::Tool> tools;
  for (const auto& definition : list) tools.push_back({.name = {}, .definition_json = definition.dump()});
  return tools;
}

}  // namespace quire::runner
