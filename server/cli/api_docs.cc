#include "server/cli/api_docs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "api/base/options.h"
#include "server/http/access.h"
#include "server/routes/error_response.h"

namespace quire::cli {
namespace {

using Document = nlohmann::ordered_json;
using server::Access;
using server::Route;

constexpr std::string_view kTableBegin = "<!-- Written by quire-docs --api . -->\n";
constexpr std::string_view kTableEnd = "<!-- -->\n";

std::vector<const Route*> Sorted(const std::vector<Route>& routes) {
  std::vector<const Route*> sorted;
  sorted.reserve(routes.size());
  for (const Route& route : routes) sorted.push_back(&route);
  std::ranges::sort(sorted, {}, [](const Route* route) { return std::tie(route->path, route->method); });
  return sorted;
}

std::string SummaryOf(const Route& route) {
  return std::string(route.operation.summary) + (route.access == Access::kAdmin ? " (admin)" : "");
}

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "postApiChat", "getV1ModelsModel"; of "/" "getRoot", of "/ui/" "getUiIndex".
std::string OperationId(const Route& route) {
  std::string id = Lower(route.method);
  bool begins = true;
  for (const char c : route.path) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) id += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = !letter;
  }
  if (route.path == "/") return id + "Root";
  return route.path.ends_with('/') ? id + "Index" : id;
}

// In server/routes/schemas.json.
std::string_view ErrorSchemaOf(const std::string& path) {
  constexpr std::array<std::string_view, 4> kSchemas = {"OllamaError", "OpenAiError", "AnthropicError",
                                                        "CohereError"};
  return kSchemas.at(static_cast<size_t>(server::ErrorDialectOf(path)));
}

Document Reference(std::string_view kind, std::string_view name) {
  return {{"$ref", fmt::format("#/components/{}/{}", kind, name)}};
}

// Empty: it reads none.
Document BodyOf(const Route& route) {
  if (route.streamed_body_bytes > 0)
    return {{"required", true}, {"content", {{"application/octet-stream", Document::object()}}}};
  if (route.operation.body.empty()) return {};
  const Document schema = {{"schema", Reference("schemas", route.operation.body)}};
  return {{"required", true}, {"content", {{"application/json", schema}}}};
}

Document ReplyOf(const server::Operation& operation) {
  Document reply = {{"description", operation.status < 300 ? "Success" : "Redirect"}};
  std::string_view types = operation.reply;
  while (!types.empty()) {
    const std::string_view type = types.substr(0, types.find(' '));
    reply["content"][std::string(type)] = Document::object();
    types.remove_prefix(std::min(types.size(), type.size() + 1));
  }
  return reply;
}

Document RepliesOf(const Route& route, bool has_body) {
  const Document error = Reference("responses", ErrorSchemaOf(route.path));
  Document replies = {{std::to_string(route.operation.status), ReplyOf(route.operation)}};
  if (has_body || !route.operation.parameters.empty()) replies["400"] = error;
  if (route.access != Access::kOpen) replies["401"] = error;
  if (route.access == Access::kAdmin) replies["403"] = error;
  if (has_body) replies["413"] = error;
  replies["default"] = error;
  return replies;
}

Document OperationOf(const Route& route) {
  Document operation = {{"operationId", OperationId(route)},
                        {"summary", SummaryOf(route)},
                        {"tags", {std::string(route.operation.tag)}}};
  for (const std::string_view name : route.operation.parameters)
    operation["parameters"].push_back(Reference("parameters", name));
  const Document body = BodyOf(route);
  if (!body.empty()) operation["requestBody"] = body;
  operation["responses"] = RepliesOf(route, !body.empty());
  if (route.access == Access::kOpen) operation["security"] = Document::array();
  return operation;
}

template <class T>
Document TypeOf(const T&) {
  if constexpr (std::is_same_v<T, std::optional<bool>>) return "boolean";
  if constexpr (std::is_same_v<T, std::optional<float>>) return "number";
  if constexpr (std::is_same_v<T, std::optional<std::vector<std::string>>>) return {"string", "array"};
  if constexpr (std::is_same_v<T, std::optional<std::vector<api::LogitBias>>>) return "object";
  if constexpr (std::is_same_v<T, std::optional<std::vector<api::TokenId>>>) return "array";
  return "integer";
}

void AddOptions(Document& schemas) {
  const api::Options options;
  api::VisitOptions(
      [&schemas](const api::OptionRow& row, const auto& option) {
        Document property = {{"type", TypeOf(option)}, {"description", row.help}};
        if (row.min) property["minimum"] = *row.min;
        if (row.max) property["maximum"] = *row.max;
        const std::string name(row.name);
        if (row.in_options()) schemas["Options"]["properties"][name] = property;
        schemas["OpenAiSampling"]["properties"][name] = property;
      },
      options);
}

// A path or a schema is one line.
void AppendValue(const Document& value, size_t depth, std::string& out) {
  out += '{';
  std::string_view before = "\n";
  for (const auto& [name, member] : value.items()) {
    out += fmt::format("{}{:{}}\"{}\": ", before, "", depth + 1, name);
    if (member.is_object() && (depth == 0 || (depth == 1 && value.contains("schemas")))) {
      AppendValue(member, depth + 1, out);
    } else {
      out += member.dump();
    }
    before = ",\n";
  }
  out += fmt::format("\n{:{}}}}", "", depth);
}

}  // namespace

std::string OpenApiOf(const std::vector<Route>& routes, const std::string& schemas) {
  Document document = Document::parse(schemas);
  AddOptions(document["components"]["schemas"]);
  for (const Route* route : Sorted(routes))
    document["paths"][route->path][Lower(route->method)] = OperationOf(*route);
  std::string out;
  AppendValue(document, 0, out);
  return out + '\n';
}

std::optional<std::string> WithRouteTable(const std::string& page, const std::vector<Route>& routes) {
  const size_t begin = page.find(kTableBegin);
  const size_t end = page.find(kTableEnd, begin);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  std::string table = "|method|path|what|\n|---|---|---|\n";
  for (const Route* route : Sorted(routes))
    table += fmt::format("|{}|`{}`|{}|\n", route->method, route->path, SummaryOf(*route));
  return page.substr(0, begin + kTableBegin.size()) + table + page.substr(end);
}

}  // namespace quire::cli
