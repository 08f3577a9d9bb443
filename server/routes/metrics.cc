#include "server/routes/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "server/routes/applied_filters.h"
#include "server/routes/resident_memory.h"
#include "server/routes/vllm_metrics.h"

namespace quire::server {
namespace {

using prometheus::ClientMetric;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Boundaries = Histogram::BucketBoundaries;

// Prefill on a CPU may take minutes.
const Boundaries kLongBuckets = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,   2.5,
                                 5,    10,    30,   60,  120,  300, 600, 1200};
const Boundaries kGapBuckets(TokenGaps::kBounds.begin(), TokenGaps::kBounds.end());

double Seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Why a request was rejected before processing; empty: it was not rejected.
std::string_view RejectionOf(const RequestLog& log) {
  switch (log.status) {
    case 401:
      return "unauthorized";
    case 403:
      if (log.error == "host refused") return "host";
      return log.error == "origin refused" ? "origin" : "forbidden";
    case 408:
      return "timeout";
    case 413:
      return "too_large";
    case 429:
      return "limit";
    case 503:
      return log.error == "overloaded" ? "overloaded" : "unavailable";
    default:
      return {};
  }
}

// Why a prompt was not fully cached, without the numbers: "diverged" of "diverged@12".
std::string MissReason(const RequestLog& log) {
  const std::string_view miss = MissForClients(log);
  return std::string(miss.substr(0, miss.find('@')));
}

// The stage of a request when its client disconnected.
std::string_view StageOf(const RequestLog& log) {
  if (log.first_token) return "decode";
  return log.queued ? "prefill" : "queue";
}

MetricFamily Gauge(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help), .type = MetricType::Gauge, .metric = {}};
}

void AddValue(MetricFamily& family, std::vector<ClientMetric::Label> labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  metric.counter.value = value;
  family.metric.push_back(std::move(metric));
}

// The cgroup of this process under version 2, or nothing. The kernel makes this file, cpu.stat and what is in
// /proc of a process from its memory, in some 20 us each and without a disk: they are read on the I/O thread.
std::string CgroupFile(std::string_view name) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return fmt::format("/sys/fs/cgroup{}/{}", line.substr(3), name);
  }
  return {};
}

double ThrottledSeconds() {
  std::ifstream file(CgroupFile("cpu.stat"));
  std::string name;
  for (uint64_t value = 0; file >> name >> value;) {
    if (name == "throttled_usec") return static_cast<double>(value) / 1e6;
  }
  return 0;
}

MetricFamily CounterFamily(std::string name, std::string help) {
  MetricFamily family = Gauge(std::move(name), std::move(help));
  family.type = MetricType::Counter;
  return family;
}

std::vector<MetricFamily> ProcessGauges(const MetricsSnapshot& snapshot) {
  MetricFamily build = Gauge("quire_build_info", "Version of the daemon");
  AddValue(build, {{"version", QUIRE_VERSION}}, 1);
  MetricFamily ready = Gauge("quire_ready", "1 while the server accepts requests");
  AddValue(ready, {}, snapshot.ready ? 1 : 0);
  MetricFamily connections = Gauge("quire_connections", "Open client connections");
  AddValue(connections, {}, static_cast<double>(snapshot.connections));
  MetricFamily budget =
      Gauge("quire_memory_budget_bytes", "Memory budget of all loaded models together; 0 = no limit");
  AddValue(budget, {}, static_cast<double>(snapshot.memory_budget_bytes));
  MetricFamily dropped =
      CounterFamily("quire_log_lines_dropped_total", "Log lines dropped, since nobody read the log");
  AddValue(dropped, {}, static_cast<double>(snapshot.log_lines_dropped));
  MetricFamily hits =
      CounterFamily("quire_vector_cache_hits_total", "Embeddings and scores given from the cache");
  AddValue(hits, {}, static_cast<double>(snapshot.vector_cache_hits));
  MetricFamily misses =
      CounterFamily("quire_vector_cache_misses_total", "Embeddings and scores that were not in the cache");
  AddValue(misses, {}, static_cast<double>(snapshot.vector_cache_misses));
  MetricFamily vectors = Gauge("quire_vector_cache_bytes", "Memory of cached embeddings and scores");
  AddValue(vectors, {}, static_cast<double>(snapshot.vector_cache_bytes));
  MetricFamily throttled =
      CounterFamily("quire_cpu_throttled_seconds_total", "Time the service was throttled by its CPU quota");
  AddValue(throttled, {}, ThrottledSeconds());
  MetricFamily evictions = CounterFamily("quire_model_evictions_total", "Models unloaded, by reason");
  for (const auto& [reason, count] : snapshot.evictions) {
    AddValue(evictions, {{"reason", reason}}, static_cast<double>(count));
  }
  MetricFamily restarts = CounterFamily("quire_runner_restarts_total", "Runners that failed, by reason");
  for (const auto& [reason, count] : snapshot.restarts) {
    AddValue(restarts, {{"reason", reason}}, static_cast<double>(count));
  }
  return {build, ready, connections, budget, dropped, hits, misses, vectors, throttled, evictions, restarts};
}

void AddRunnerGauges(const MetricsSnapshot& snapshot, std::vector<MetricFamily>& out) {
  MetricFamily up = Gauge("quire_runner_up", "1 for every loaded model");
  MetricFamily predicted = Gauge("quire_memory_predicted_bytes", "Predicted memory use of a loaded model");
  MetricFamily resident = Gauge("quire_memory_rss_bytes", "Resident memory of a process");
  MetricFamily threads = Gauge("quire_cpu_threads", "Compute threads of a loaded model");
  MetricFamily filters =
      Gauge("quire_runner_system_call_filters",
            "System call filters that the runner of a loaded model has applied to itself; fewer "
            "than 3 = it is not confined");
  const int inherited = AppliedFilters(::getpid()).value_or(0);
  AddValue(resident, {{"process", "quired"}}, static_cast<double>(ResidentBytes(::getpid())));
  for (const auto& runner : snapshot.runners) {
    AddValue(up, {{"model", runner.model}}, 1);
    AddValue(predicted, {{"model", runner.model}}, static_cast<double>(runner.predicted_bytes));
    AddValue(resident, {{"process", "runner:" + runner.model}},
             static_cast<double>(ResidentBytes(runner.pid)));
    if (const auto applied = AppliedFilters(runner.pid))
      AddValue(filters, {{"model", runner.model}}, *applied - inherited);
    if (runner.threads > 0) AddValue(threads, {{"model", runner.model}}, runner.threads);
  }
  MetricFamily loaded = Gauge("quire_model_loaded", "Number of loaded models");
  AddValue(loaded, {}, static_cast<double>(snapshot.runners.size()));
  for (MetricFamily* family : {&up, &predicted, &resident, &filters, &threads, &loaded})
    out.push_back(std::move(*family));
}

// From the last heartbeat of each runner.
void AddHeartbeatMetrics(const MetricsSnapshot& snapshot, std::vector<MetricFamily>& out) {
  MetricFamily load = Gauge("quire_model_load_seconds", "Load time of a loaded model");
  MetricFamily idle = Gauge("quire_runner_last_progress_seconds",
                            "Seconds since the runner last made progress, also while idle");
  MetricFamily steps =
      CounterFamily("quire_engine_steps_total", "Engine steps (forward passes) of a loaded model");
  MetricFamily cache = Gauge("quire_cache_bytes", "Cache memory of a loaded model, by state");
  MetricFamily usage =
      Gauge("quire_cache_usage_ratio", "Fraction of the cache in use, including prefix snapshots");
  MetricFamily snapshots = Gauge("quire_prefix_snapshots", "Prefix snapshots stored for reuse");
  MetricFamily bytes = Gauge("quire_prefix_snapshot_bytes", "Cache memory used by prefix snapshots");
  MetricFamily evictions = CounterFamily("quire_prefix_snapshot_evictions_total", "Prefix snapshots evicted");
  for (const auto& runner : snapshot.runners) {
    const api::ipc::Heartbeat& heartbeat = runner.heartbeat;
    const std::vector<ClientMetric::Label> model = {{"model", runner.model}};
    const auto tiered = [&] { return std::vector<ClientMetric::Label>{model[0], {"tier", "memory"}}; };
    AddValue(load, model, Seconds(runner.load_time));
    AddValue(idle, model, Seconds(runner.since_progress));
    AddValue(steps, model, static_cast<double>(heartbeat.steps));
    AddValue(cache, {model[0], {"state", "used"}}, static_cast<double>(heartbeat.cache_bytes_used));
    AddValue(cache, {model[0], {"state", "reserved"}}, static_cast<double>(runner.cache_bytes));
    if (runner.cache_bytes > 0) {
      const auto used = static_cast<double>(heartbeat.cache_bytes_used);
      AddValue(usage, model, used / static_cast<double>(runner.cache_bytes));
    }
    AddValue(snapshots, tiered(), static_cast<double>(heartbeat.prefix_snapshots));
    AddValue(bytes, tiered(), static_cast<double>(heartbeat.prefix_bytes));
    AddValue(evictions, tiered(), static_cast<double>(heartbeat.prefix_evictions));
  }
  for (MetricFamily* family : {&load, &idle, &steps, &cache, &usage, &snapshots, &bytes, &evictions}) {
    out.push_back(std::move(*family));
  }
}

void AddTierMetrics(const MetricsSnapshot::Tier& tier, std::vector<MetricFamily>& out) {
  const auto add = [&out](MetricFamily family, uint64_t value) {
    AddValue(family, {}, static_cast<double>(value));
    out.push_back(std::move(family));
  };
  add(Gauge("quire_snapshot_disk_bytes", "Disk space used by prefix snapshots"), tier.bytes);
  add(Gauge("quire_snapshot_disk_budget_bytes", "Disk space for prefix snapshots"), tier.budget_bytes);
  add(Gauge("quire_snapshot_disk_files", "Files of prefix snapshots"), tier.files);
  add(Gauge("quire_snapshot_disk_writing", "1 while prefix snapshots are written; 0 after a failure"),
      tier.writing ? 1 : 0);
  add(CounterFamily("quire_snapshot_disk_writes_total", "Snapshot files written"), tier.written);
  add(CounterFamily("quire_snapshot_disk_reads_total", "Snapshot files read and verified"), tier.read);
  add(CounterFamily("quire_snapshot_disk_evictions_total", "Snapshot files evicted"), tier.evictions);
  add(CounterFamily("quire_snapshot_disk_corrupt_total", "Snapshot files removed since their hash was wrong"),
      tier.corrupt);
  add(CounterFamily("quire_snapshot_disk_failures_total", "Failed system calls on snapshot files"),
      tier.failures);
}

void AddRedisMetrics(const MetricsSnapshot::Redis& redis, std::vector<MetricFamily>& out) {
  const auto add = [&out](MetricFamily family, uint64_t value) {
    AddValue(family, {}, static_cast<double>(value));
    out.push_back(std::move(family));
  };
  add(Gauge("quire_snapshot_redis_connected", "1 while Redis can be asked for prefixes"),
      redis.connected ? 1 : 0);
  add(CounterFamily("quire_snapshot_redis_lookups_total", "Questions for prefixes in Redis"), redis.lookups);
  add(CounterFamily("quire_snapshot_redis_late_total", "Questions that Redis did not answer in time"),
      redis.late);
  add(CounterFamily("quire_snapshot_redis_reads_total", "Segments of prefixes fetched from Redis"),
      redis.read);
  add(CounterFamily("quire_snapshot_redis_writes_total", "Segments of prefixes sent to Redis"),
      redis.written);
  add(CounterFamily("quire_snapshot_redis_dropped_total", "Segments not sent since too many waited"),
      redis.dropped);
  add(CounterFamily("quire_snapshot_redis_corrupt_total",
                    "Values in Redis that were not what they should be"),
      redis.corrupt);
  add(CounterFamily("quire_snapshot_redis_failures_total", "Failed connections and refused commands"),
      redis.failures);
}

void AddTraceMetrics(const MetricsSnapshot::Traces& traces, std::vector<MetricFamily>& out) {
  MetricFamily sent = CounterFamily("quire_traces_sent_total", "Traces of requests that the collector took");
  AddValue(sent, {}, static_cast<double>(traces.sent));
  MetricFamily dropped =
      CounterFamily("quire_traces_dropped_total", "Traces of requests that the collector did not take");
  AddValue(dropped, {}, static_cast<double>(traces.dropped));
  out.push_back(std::move(sent));
  out.push_back(std::move(dropped));
}

void AddRequestGauges(const MetricsSnapshot& snapshot, std::vector<MetricFamily>& out) {
  MetricFamily running = Gauge("quire_requests_running", "Requests being processed by a runner");
  MetricFamily waiting = Gauge("quire_requests_waiting", "Requests waiting for a runner");
  MetricFamily pending =
      Gauge("quire_pending_prefill_seconds", "Predicted prefill of all requests without a first token");
  for (const auto& [model, requests] : snapshot.requests) {
    AddValue(running, {{"model", model}}, requests.running);
    AddValue(waiting, {{"model", model}}, requests.waiting);
  }
  // Also of a loaded model without requests: an autoscaler needs the 0.
  for (const auto& [model, prefill] : snapshot.prefill)
    AddValue(pending, {{"model", model}}, prefill.pending_seconds);
  for (MetricFamily* family : {&running, &waiting, &pending}) out.push_back(std::move(*family));
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(bool vllm_names) : vllm(vllm_names ? std::make_unique<VllmMetrics>() : nullptr) {}

  Family<Counter>& CounterOf(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Family<Histogram>& HistogramOf(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }

  // Series stay for as long as the daemon runs: models that come later share one label.
  std::string LabelOf(const std::string& model) {
    constexpr size_t kModelsMax = 128;
    if (model.empty() || models.contains(model)) return model;
    if (models.size() >= kModelsMax) return "other";
    models.insert(model);
    return model;
  }

  std::set<std::string> models;
  std::unique_ptr<VllmMetrics> vllm;  // null: only our own names
  prometheus::Registry registry;
  Family<Counter>& requests = CounterOf("quire_requests_total", "Requests completed");
  Family<Counter>& rejected = CounterOf("quire_requests_rejected_total", "Requests rejected, by reason");
  Family<Counter>& cancelled =
      CounterOf("quire_requests_cancelled_total", "Requests cancelled by client disconnect, by stage");
  Family<Counter>& prompt_tokens = CounterOf("quire_prompt_tokens_total", "Prompt tokens, by source");
  Family<Counter>& output_tokens = CounterOf("quire_generation_tokens_total", "Tokens generated");
  Family<Counter>& prompt_seconds =
      CounterOf("quire_prompt_compute_seconds_total", "Time from prompt start to first token");
  Family<Counter>& output_seconds =
      CounterOf("quire_decode_compute_seconds_total", "Time from first to last token");
  Family<Counter>& cache_queries =
      CounterOf("quire_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  Family<Counter>& cache_hits =
      CounterOf("quire_prefix_cache_hits_total", "Prompt tokens served from the prefix cache");
  Family<Counter>& cache_misses =
      CounterOf("quire_prefix_cache_misses_total", "Requests whose prompt was not fully cached, by reason");
  Family<Counter>& drafted = CounterOf("quire_spec_draft_tokens_total", "Draft tokens proposed");
  Family<Counter>& accepted = CounterOf("quire_spec_accepted_tokens_total", "Draft tokens accepted");
  Family<Counter>& accepted_at =
      CounterOf("quire_spec_accepted_by_position_total", "Draft tokens accepted, by position in the draft");
  Family<Counter>& rollback =
      CounterOf("quire_spec_rollback_seconds_total", "Time spent rolling back rejected draft tokens");
  Family<Histogram>& duration =
      HistogramOf("quire_request_duration_seconds", "Time from first request byte to end of response");
  Family<Histogram>& queue =
      HistogramOf("quire_queue_time_seconds", "Time until a runner started the prompt");
  Family<Histogram>& first_token = HistogramOf("quire_time_to_first_token_seconds", "Time to first token");
  Family<Histogram>& gaps =
      HistogramOf("quire_inter_token_latency_seconds", "Time between two tokens of a stream");
  Family<Histogram>& per_token =
      HistogramOf("quire_time_per_output_token_seconds", "Mean time per output token after the first");
};

Metrics::Metrics(bool vllm_names) : impl_(std::make_unique<Impl>(vllm_names)) {}

Metrics::~Metrics() = default;

void Metrics::Observe(const RequestLog& log, std::chrono::steady_clock::time_point now) {
  Impl& in = *impl_;
  const std::string name = in.LabelOf(log.stored_model);
  const std::string endpoint = log.route.empty() ? "other" : log.route;
  in.requests.Add({{"model", name}, {"endpoint", endpoint}, {"code", std::to_string(log.status)}})
      .Increment();
  if (const auto reason = RejectionOf(log); !reason.empty())
    in.rejected.Add({{"reason", std::string(reason)}}).Increment();
  if (log.stored_model.empty()) return;
  if (in.vllm) in.vllm->Observe(log, name, now);

  const Labels model = {{"model", name}};
  const bool left = log.status == 499 || log.error == "client gone";
  if (left) in.cancelled.Add({{"model", name}, {"stage", std::string(StageOf(log))}}).Increment();
  in.duration.Add(model, kLongBuckets).Observe(Seconds(now - log.start));
  if (log.queued) in.queue.Add(model, kLongBuckets).Observe(Seconds(*log.queued));
  if (log.first_token) in.first_token.Add(model, kLongBuckets).Observe(Seconds(*log.first_token));
  if (log.prompt_tokens) {
    const int32_t cached = std::clamp(log.cached_tokens.value_or(0), 0, *log.prompt_tokens);
    in.prompt_tokens.Add({{"model", name}, {"source", "computed"}}).Increment(*log.prompt_tokens - cached);
    in.prompt_tokens.Add({{"model", name}, {"source", "cached"}}).Increment(cached);
    in.cache_queries.Add(model).Increment(*log.prompt_tokens);
    in.cache_hits.Add(model).Increment(cached);
    if (!log.miss.empty()) {
      in.cache_misses.Add({{"model", name}, {"reason", MissReason(log)}}).Increment();
    }
  }
  if (log.output_tokens) in.output_tokens.Add(model).Increment(*log.output_tokens);
  in.prompt_seconds.Add(model).Increment(Seconds(log.prompt_compute));
  in.output_seconds.Add(model).Increment(Seconds(log.output_compute));
  if (log.draft.rounds > 0) {
    in.drafted.Add(model).Increment(log.draft.drafted);
    in.accepted.Add(model).Increment(log.draft.accepted());
    in.rollback.Add(model).Increment(Seconds(std::chrono::nanoseconds(log.draft.rollback_ns)));
    for (size_t i = 0; i < log.draft.accepted_by_position.size(); ++i) {
      in.accepted_at.Add({{"model", name}, {"position", std::to_string(i + 1)}})
          .Increment(log.draft.accepted_by_position[i]);
    }
  }
  if (log.output_tokens.value_or(0) > 1) {
    in.per_token.Add(model, kGapBuckets).Observe(Seconds(log.output_compute) / (*log.output_tokens - 1));
  }
  if (log.gaps.sum > 0) {
    const std::vector<double> counts(log.gaps.counts.begin(), log.gaps.counts.end());
    in.gaps.Add(model, kGapBuckets).ObserveMultiple(counts, log.gaps.sum);
  }
}

std::string Metrics::Text(const MetricsSnapshot& snapshot) const {
  std::vector<MetricFamily> families = ProcessGauges(snapshot);
  AddRunnerGauges(snapshot, families);
  AddHeartbeatMetrics(snapshot, families);
  if (snapshot.tier) AddTierMetrics(*snapshot.tier, families);
  if (snapshot.redis) AddRedisMetrics(*snapshot.redis, families);
  if (snapshot.traces) AddTraceMetrics(*snapshot.traces, families);
  AddRequestGauges(snapshot, families);
  for (MetricFamily& family : impl_->registry.Collect()) families.push_back(std::move(family));
  if (impl_->vllm) {
    for (MetricFamily& family : impl_->vllm->Collect(snapshot)) families.push_back(std::move(family));
  }
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire::server
