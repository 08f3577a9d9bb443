// Metrics under vLLM's names (QUIRE_METRICS_COMPAT=vllm), for routers, autoscaling rules and dashboards that
// read those. I/O thread only. Labels: model_name, and engine="0" as vLLM has it.
#pragma once

#include <prometheus/metric_family.h>

#include <chrono>
#include <memory>
#include <vector>

#include "server/http/request_log.h"
#include "server/routes/metrics.h"

namespace quire::server {

class VllmMetrics {
 public:
  VllmMetrics();
  VllmMetrics(const VllmMetrics&) = delete;
  VllmMetrics& operator=(const VllmMetrics&) = delete;
  ~VllmMetrics();

  // A request that has ended; `model`: the label of its model.
  void Observe(const RequestLog& log, const std::string& model, std::chrono::steady_clock::time_point now);
  std::vector<prometheus::MetricFamily> Collect(const MetricsSnapshot& snapshot) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
