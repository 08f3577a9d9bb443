#include "api/json/testing/tools_of.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/json/read.h"
#include "api/json/tool_fields.h"

namespace quire::api::testing {

std::vector<Tool> ToolsOf(const std::string& json) {
  const auto body = ReadJson("{\"tools\":" + json + "}");
  FirstError error;
  Fields fields(body.value(), "", error);
  auto tools = GetTools(fields);
  EXPECT_FALSE(error) << error->message;
  return tools;
}

}  // namespace quire::api::testing
