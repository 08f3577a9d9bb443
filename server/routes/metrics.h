// The output of GET /metrics: counters and histograms fed by every completed request, and gauges of the
// current state.
//
// Nothing here waits for a runner: a scrape reads what the daemon knows. Labels are bounded: models as the
// store names them, routes as the router does, reasons from fixed lists; never a prompt, an id or a path. I/O
// thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/ipc/messages.h"
#include "server/http/request_log.h"

namespace quire::server {

// A snapshot of the daemon.
struct MetricsSnapshot {
  struct Requests {
    int running = 0, waiting = 0;
  };
  struct Runner {
    std::string model;
    int pid = 0;
    int64_t predicted_bytes = 0;  // weights, caches and all else
    int32_t threads = 0;          // 0 = not known
    std::chrono::nanoseconds load_time = {};
    std::chrono::nanoseconds since_progress = {};
    int64_t cache_bytes = 0;  // capacity of its caches
    api::ipc::Heartbeat heartbeat = {};
  };
  // Prefixes on disk.
  struct Tier {
    uint64_t bytes = 0, budget_bytes = 0, files = 0;
    uint64_t written = 0, read = 0, evictions = 0, corrupt = 0, failures = 0;
    bool writing = true;
  };
  std::optional<Tier> tier = {};  // nothing: there is none
  struct Redis {
    bool connected = false;
    uint64_t lookups = 0, late = 0, read = 0, written = 0, dropped = 0, corrupt = 0, failures = 0;
  };
  std::optional<Redis> redis = {};  // likewise
  struct Traces {
    uint64_t sent = 0, dropped = 0;
  };
  std::optional<Traces> traces = {};         // likewise
  std::map<std::string, Requests> requests;  // by model
  struct Prefill {
    double pending_seconds = 0;   // of prompts that wait or are computed
    double bytes_per_second = 0;  // of request bodies; 0 = not known
  };
  std::map<std::string, Prefill> prefill;  // by model
  std::vector<Runner> runners;
  std::map<std::string, uint64_t> evictions, restarts;  // since the start, by reason
  int64_t memory_budget_bytes = 0;                      // of all runners together; 0 = none
  size_t connections = 0;
  uint64_t log_lines_dropped = 0;
  uint64_t vector_cache_hits = 0, vector_cache_misses = 0;
  size_t vector_cache_bytes = 0;
  bool ready = true;
};

class Metrics {
 public:
  // `vllm_names`: also vllm_metrics.h.
  explicit Metrics(bool vllm_names);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  void Observe(const RequestLog& log, std::chrono::steady_clock::time_point now);
  // Prometheus' text format 0.0.4.
  std::string Text(const MetricsSnapshot& snapshot) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
