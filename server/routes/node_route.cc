#include "server/routes/node_route.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/routes/relay.h"
#include "server/routes/resident_memory.h"

namespace quire::server {
namespace {

using Json = nlohmann::ordered_json;

Json ModelsOf(const MetricsSnapshot& snapshot) {
  Json models = Json::object();
  for (const auto& [name, requests] : snapshot.requests) {
    models[name] = {{"loaded", false}, {"running", requests.running}, {"waiting", requests.waiting}};
  }
  for (const auto& runner : snapshot.runners) {
    Json& model = models[runner.model];
    model["loaded"] = true;
    model["load_seconds"] = std::chrono::duration<double>(runner.load_time).count();
  }
  for (const auto& [name, prefill] : snapshot.prefill) {
    if (!models.contains(name)) continue;
    models[name]["pending_prefill_seconds"] = prefill.pending_seconds;
    models[name]["prefill_bytes_per_second"] = prefill.bytes_per_second;
  }
  return models;
}

Awaitable<void> ShowNode(AsyncModelStore& models, const std::function<MetricsSnapshot()>& snapshot,
                         Exchange& exchange) {
  const auto listed = co_await models.List();
  if (!*listed) {
    co_await SendError(exchange, listed->error());
    co_return;
  }
  std::vector<std::string> names;
  names.reserve((*listed)->size());
  for (const StoredModel& model : **listed) names.push_back(model.name.Display());
  HttpResponse response{.body = EncodeNode(snapshot(), names), .headers = {{"Cache-Control", "no-store"}}};
  co_await exchange.Send(std::move(response));
}

}  // namespace

std::string EncodeNode(const MetricsSnapshot& snapshot, const std::vector<std::string>& stored) {
  int64_t resident = 0, prefixes = 0, prefix_bytes = 0;
  for (const auto& runner : snapshot.runners) {
    resident += ResidentBytes(runner.pid);
    prefixes += runner.heartbeat.prefix_snapshots;
    prefix_bytes += runner.heartbeat.prefix_bytes;
  }
  int running = 0, waiting = 0;
  for (const auto& [name, requests] : snapshot.requests) {
    running += requests.running;
    waiting += requests.waiting;
  }
  double pending = 0;
  for (const auto& [name, prefill] : snapshot.prefill) pending += prefill.pending_seconds;
  const Json node{{"version", QUIRE_VERSION},
                  {"ready", snapshot.ready},
                  {"pending_prefill_seconds", pending},
                  {"running", running},
                  {"waiting", waiting},
                  {"memory_bytes", resident},
                  {"memory_budget_bytes", snapshot.memory_budget_bytes},
                  {"prefixes", prefixes},
                  {"prefix_bytes", prefix_bytes},
                  {"disk_files", snapshot.tier ? snapshot.tier->files : 0},
                  {"disk_bytes", snapshot.tier ? snapshot.tier->bytes : 0},
                  {"models", ModelsOf(snapshot)},
                  {"stored", stored}};
  return node.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AddNodeRoutes(Router& router, AsyncModelStore& models, std::function<MetricsSnapshot()> snapshot) {
  router.Add({.method = "GET",
              .path = "/quire/node",
              .handler = [&models, snapshot = std::move(snapshot)](
                             Exchange& exchange) { return ShowNode(models, snapshot, exchange); },
              .access = Access::kAdmin});
}

}  // namespace quire::server
