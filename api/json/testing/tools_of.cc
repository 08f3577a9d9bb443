#include "api/json/testing/tools_of.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "api/json/read.h"
#include "api/json/tool_fields.h"

namespace quire::api::testing {

std::vector<Tool> ToolsOf(const std::string& json) {
  const auto body = ReadJson("{\"tools\":" + json + "}");
  FirstError error;
  Fields fields(body.value(), "", error);
  auto tools = GetToolUse(fields).tools;
  if (error) throw std::invalid_argument(error->message);
  return tools;
}

}  // namespace quire::api::testing
