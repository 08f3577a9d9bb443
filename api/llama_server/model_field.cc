#include "api/llama_server/model_field.h"

#include <nlohmann/json.hpp>

#include "api/json/body.h"
#include "api/json/read.h"

namespace quire::api::llama_server {

std::string WithPlaceholderModel(std::string_view body, const Error& error) {
  constexpr std::string_view kModel = "model";
  if (error.field != kModel) return {};
  auto json = ReadBody(body);
  if (!json) return {};
  FirstError none;
  Fields fields(*json, "", none);
  std::string model;
  fields.Get(kModel, model);
  if (none || !model.empty()) return {};  // it has one, which is wrong
  (*json)[std::string(kModel)] = "loaded";
  return DumpJson(*json);
}

}  // namespace quire::api::llama_server
