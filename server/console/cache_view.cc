#include "server/console/cache_view.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/type.h"

namespace quire::server {
namespace {

using Json = api::Json;

Json NodeOf(const api::ipc::InspectedNode& node) {
  Json out{{"id", node.id},
           {"parent", node.parent},
           {"key", node.tree},
           {"from", node.from},
           {"to", node.to},
           {"kv_bytes", node.kv_bytes},
           {"window_bytes", node.window_bytes},
           {"state_bytes", node.state_bytes},
           {"shared_bytes", node.shared_bytes},
           {"restore_point", node.restore_point},
           {"marked", node.marked},
           {"in_use", node.in_use},
           {"evicted_children", node.evicted_children},
           {"hits", node.hits},
           {"age_ms", node.age_ms},
           {"idle_ms", node.idle_ms}};
  if (!node.begin.empty()) out["begin"] = node.begin;
  if (!node.end.empty()) out["end"] = node.end;
  return out;
}

}  // namespace

std::string EncodeCache(const std::string& model, const scheduler::CacheView* view) {
  Json reply{{"model", model}, {"loaded", view != nullptr}};
  if (view != nullptr) {
    const api::ipc::CacheInspected& cache = view->cache;
    Json nodes = Json::array();
    for (const api::ipc::InspectedNode& node : cache.nodes) nodes.push_back(NodeOf(node));
    reply["budget_bytes"] = cache.budget_bytes;
    reply["bytes"] = cache.bytes;
    reply["nodes"] = std::move(nodes);
    reply["nodes_left_out"] = cache.nodes_left_out;
    if (cache.other_keys > 0) reply["others"] = {{"keys", cache.other_keys}, {"nodes", cache.other_nodes}};
  }
  return reply.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire::server
