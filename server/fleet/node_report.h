// What a node of a fleet says of itself: the body of GET /quire/node.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::server {

struct NodeReport {
  struct Model {
    bool loaded = false;
    int32_t running = 0, waiting = 0;
    double pending_prefill_seconds = 0;
    double prefill_bytes_per_second = 0;  // of request bodies; 0 = not known yet
    double load_seconds = 0;              // of the last load; 0 = not known
  };

  std::string version = {};
  bool ready = false;
  double pending_prefill_seconds = 0;  // of all models
  int32_t running = 0, waiting = 0;
  std::map<std::string, Model> models = {};  // loaded, or with requests
  std::vector<std::string> stored = {};      // names of the store
  int64_t memory_bytes = 0, memory_budget_bytes = 0;
  int64_t prefixes = 0, prefix_bytes = 0;  // in memory
  int64_t disk_files = 0, disk_bytes = 0;  // of prefixes
};

// kInvalidArgument: not such a body. Missing members keep their defaults.
api::Result<NodeReport> ParseNodeReport(std::string_view body);

// One line of JSON: {"node": NAME, "error": ...} or the report's figures.
std::string EncodeReport(const std::string& name, const api::Result<NodeReport>& report);

}  // namespace quire::server
