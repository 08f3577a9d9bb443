#include "server/routes/node_route.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "api/json/type.h"
#include "server/http/party.h"
#include "server/routes/relay.h"
#include "server/routes/resident_memory.h"

namespace quire::server {
namespace {

using Json = api::Json;

Json ModelsOf(const MetricsSnapshot& snapshot) {
  std::map<std::string_view, const MetricsSnapshot::Runner*> loaded;
  for (const auto& runner : snapshot.runners) loaded[runner.model] = &runner;
  std::set<std::string_view> names;
  for (const auto& [name, runner] : loaded) names.insert(name);
  for (const auto& [name, requests] : snapshot.requests) names.insert(name);
  Json models = Json::object();
  for (const std::string_view name : names) {
    Json& model = models[std::string(name)] = Json::object();
    const auto runner = loaded.find(name);
    model["loaded"] = runner != loaded.end();
    if (runner != loaded.end()) {
      model["load_seconds"] = std::chrono::duration<double>(runner->second->load_time).count();
    }
    if (const auto requests = snapshot.requests.find(std::string(name));
        requests != snapshot.requests.end()) {
      model["running"] = requests->second.running;
      model["waiting"] = requests->second.waiting;
    }
    if (const auto prefill = snapshot.prefill.find(std::string(name)); prefill != snapshot.prefill.end()) {
      model["pending_prefill_seconds"] = prefill->second.pending_seconds;
      model["prefill_bytes_per_second"] = prefill->second.bytes_per_second;
    }
  }
  return models;
}

Awaitable<void> ShowNode(AsyncModelStore& models, const std::function<MetricsSnapshot()>& snapshot,
                         Exchange& exchange) {
  const auto listed = co_await models.List(PartyOf(exchange));
  if (!listed) {
    co_await SendError(exchange, listed.error());
    co_return;
  }
  std::vector<std::string> names;
  names.reserve(listed->size());
  for (const SharedModel& model : *listed) names.push_back(model->name.Display());
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
              .access = Access::kAdmin},
             {"console", "Load, models and prefixes of this daemon, as `quire fleet status` reads them"});
}

}  // namespace quire::server
