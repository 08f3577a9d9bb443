#include "server/cli/wait_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/base/model_name.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

// The entry of a list of models, or null.
Json EntryOf(std::string_view ps_json, const std::string& model) {
  const Json list = Json::parse(ps_json, nullptr, false);
  const auto wanted = api::ParseModelName(model);
  if (!wanted || !list.is_object() || !list.contains("models") || !list["models"].is_array()) return nullptr;
  const auto found = std::ranges::find_if(list["models"], [&wanted](const Json& entry) {
    const auto name = api::ParseModelName(entry.is_object() ? entry.value("name", "") : "");
    return name && name->Matches(*wanted);
  });
  return found == list["models"].end() ? Json() : *found;
}

}  // namespace

std::string WaitText(std::string_view ps_json, const std::string& model) {
  const Json entry = EntryOf(ps_json, model);
  if (entry.is_null()) return "loading " + model;
  const auto loading = entry.find("loading");
  if (loading == entry.end() || !loading->is_object()) return "waiting for " + model;
  const auto percent = static_cast<int>(std::lround(loading->value("progress", 0.0) * 100));
  const std::string stage = loading->value("stage", "");
  return fmt::format("loading {} ({}%{}{})", model, percent, stage.empty() ? "" : ", ", stage);
}

}  // namespace quire::cli
