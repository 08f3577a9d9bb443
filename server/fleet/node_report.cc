#include "server/fleet/node_report.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/read.h"
#include "api/json/type.h"

namespace quire::server {
namespace {

template <class Number>
void ReadNumber(const api::Json& object, const char* name, Number& out) {
  const auto it = object.find(std::string(name));
  if (it != object.end() && it->is_number()) out = it->get<Number>();
}

NodeReport::Model ModelReportOf(const api::Json& json) {
  NodeReport::Model model;
  if (const auto loaded = json.find(std::string("loaded")); loaded != json.end() && loaded->is_boolean())
    model.loaded = loaded->get<bool>();
  ReadNumber(json, "running", model.running);
  ReadNumber(json, "waiting", model.waiting);
  ReadNumber(json, "pending_prefill_seconds", model.pending_prefill_seconds);
  ReadNumber(json, "prefill_bytes_per_second", model.prefill_bytes_per_second);
  ReadNumber(json, "load_seconds", model.load_seconds);
  return model;
}

void ReadModels(const api::Json& json, NodeReport& report) {
  if (const auto models = json.find(std::string("models")); models != json.end() && models->is_object()) {
    for (const auto& [name, model] : models->items()) {
      if (model.is_object()) report.models.insert_or_assign(name, ModelReportOf(model));
    }
  }
  if (const auto stored = json.find(std::string("stored")); stored != json.end() && stored->is_array()) {
    report.stored.reserve(stored->size());
    for (const api::Json& name : *stored) {
      if (name.is_string()) report.stored.push_back(name.get<std::string>());
    }
  }
}

}  // namespace

api::Result<NodeReport> ParseNodeReport(std::string_view body) {
  const auto json = api::ReadJson(body);
  if (!json) return std::unexpected(json.error());
  const auto ready = json->is_object() ? json->find(std::string("ready")) : json->end();
  if (ready == json->end() || !ready->is_boolean())
    return api::Fail(api::ErrorCode::kInvalidArgument, "not the report of a node");
  NodeReport report{.ready = ready->get<bool>()};
  if (const auto version = json->find(std::string("version")); version != json->end() && version->is_string())
    report.version = version->get<std::string>();
  ReadNumber(*json, "pending_prefill_seconds", report.pending_prefill_seconds);
  ReadNumber(*json, "running", report.running);
  ReadNumber(*json, "waiting", report.waiting);
  ReadNumber(*json, "memory_bytes", report.memory_bytes);
  ReadNumber(*json, "memory_budget_bytes", report.memory_budget_bytes);
  ReadNumber(*json, "prefixes", report.prefixes);
  ReadNumber(*json, "prefix_bytes", report.prefix_bytes);
  ReadNumber(*json, "disk_files", report.disk_files);
  ReadNumber(*json, "disk_bytes", report.disk_bytes);
  ReadModels(*json, report);
  return report;
}

std::string EncodeReport(const std::string& name, const api::Result<NodeReport>& report) {
  api::Json json{{"node", name}};
  if (!report) {
    json["error"] = report.error().message;
    return json.dump(-1, ' ', false, api::Json::error_handler_t::replace);
  }
  json["version"] = report->version;
  json["ready"] = report->ready;
  json["running"] = report->running;
  json["waiting"] = report->waiting;
  json["pending_prefill_seconds"] = report->pending_prefill_seconds;
  json["memory_bytes"] = report->memory_bytes;
  json["memory_budget_bytes"] = report->memory_budget_bytes;
  json["prefixes"] = report->prefixes;
  json["prefix_bytes"] = report->prefix_bytes;
  json["disk_files"] = report->disk_files;
  json["disk_bytes"] = report->disk_bytes;
  api::Json loaded = api::Json::array();
  for (const auto& [model, state] : report->models) {
    if (state.loaded) loaded.push_back(model);
  }
  json["loaded"] = std::move(loaded);
  return json.dump(-1, ' ', false, api::Json::error_handler_t::replace);
}

}  // namespace quire::server
