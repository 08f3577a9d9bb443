#include "server/cli/lists.h"

#include <fmt/format.h>
#include <time.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "server/cli/table.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

// RFC 3339 with any fraction and zone, to the second.
std::optional<Seconds> ParseTime(const std::string& text) {
  std::tm parts = {};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.') {
    do ++rest;
    while (*rest >= '0' && *rest <= '9');
  }
  std::tm zone = {};
  if (strptime(rest, "%z", &zone) == nullptr) return std::nullopt;
  return Seconds(std::chrono::seconds(timegm(&parts) - zone.tm_gmtoff));
}

std::string Text(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t Number(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

api::Result<Json> Models(std::string_view body) {
  Json json = Json::parse(body, nullptr, false);
  if (!json.is_object() || !json.contains("models") || !json["models"].is_array()) {
    return api::Fail(api::ErrorCode::kInternal, "the server returned an invalid model list");
  }
  return std::move(json["models"]);
}

// The percentage of a model that is still being loaded.
std::optional<int> LoadPercent(const Json& model) {
  const auto loading = model.find("loading");
  if (loading == model.end() || !loading->is_object()) return std::nullopt;
  return static_cast<int>(std::lround(loading->value("progress", 0.0) * 100));
}

std::string Until(const Json& model, Seconds now) {
  if (const auto percent = LoadPercent(model)) return fmt::format("Loading {}%", *percent);
  const auto expires = ParseTime(Text(model, "expires_at"));
  if (!expires) return "";
  const auto left = *expires - now;
  if (left > std::chrono::hours(24 * 365)) return "Forever";
  return left.count() <= 0 ? "Stopping..." : FormatAge(-left);
}

}  // namespace

api::Result<std::string> ListTable(std::string_view tags_json, std::string_view prefix, Seconds now) {
  const auto models = Models(tags_json);
  if (!models) return std::unexpected(models.error());
  std::vector<std::vector<std::string>> rows = {{"NAME", "ID", "SIZE", "MODIFIED"}};
  for (const auto& model : *models) {
    const std::string name = Text(model, "name");
    if (!name.starts_with(prefix)) continue;
    const auto modified = ParseTime(Text(model, "modified_at"));
    rows.push_back({name, Text(model, "digest").substr(0, 12), FormatSize(Number(model, "size")),
                    modified ? FormatAge(now - *modified) : ""});
  }
  return FormatTable(rows);
}

api::Result<std::string> PsTable(std::string_view ps_json, Seconds now) {
  const auto models = Models(ps_json);
  if (!models) return std::unexpected(models.error());
  std::vector<std::vector<std::string>> rows = {{"NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"}};
  for (const auto& model : *models) {
    rows.push_back({Text(model, "name"), Text(model, "digest").substr(0, 12),
                    FormatSize(Number(model, "size")), "100% CPU",
                    std::to_string(Number(model, "context_length")), Until(model, now)});
  }
  return FormatTable(rows);
}

}  // namespace quire::cli
