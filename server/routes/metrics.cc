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
#include <string_view>
#include <utility>

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

// Why a request was turned away before any work was done for it; empty: it was not.
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

// Why the prefix cache had not all of a prompt, without the numbers: "diverged" of "diverged@12".
std::string MissReason(const std::string& miss) { return miss.substr(0, miss.find('@')); }

// How far a request had come when its client left.
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

double ResidentBytes(int pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  uint64_t size = 0;
  uint64_t resident = 0;
  file >> size >> resident;
  return file ? static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) : 0;
}

// The cgroup of this process under version 2, or nothing.
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

std::vector<MetricFamily> ProcessGauges(const MetricsMoment& moment) {
  MetricFamily build = Gauge("quire_build_info", "Version of the daemon");
  AddValue(build, {{"version", QUIRE_VERSION}}, 1);
  MetricFamily ready = Gauge("quire_ready", "1 while requests are taken");
  AddValue(ready, {}, moment.ready ? 1 : 0);
  MetricFamily connections = Gauge("quire_connections", "Open client connections");
  AddValue(connections, {}, static_cast<double>(moment.connections));
  MetricFamily budget =
      Gauge("quire_memory_budget_bytes", "Memory that all loaded models may take together; 0 = no bound");
  AddValue(budget, {}, static_cast<double>(moment.memory_budget_bytes));
  MetricFamily throttled =
      CounterFamily("quire_cpu_throttled_seconds_total", "Time the service was held at its CPU quota");
  AddValue(throttled, {}, ThrottledSeconds());
  MetricFamily evictions = CounterFamily("quire_model_evictions_total", "Models that were ended, by reason");
  for (const auto& [reason, count] : moment.evictions) {
    AddValue(evictions, {{"reason", reason}}, static_cast<double>(count));
  }
  MetricFamily restarts = CounterFamily("quire_runner_restarts_total", "Runners that died, by reason");
  for (const auto& [reason, count] : moment.restarts) {
    AddValue(restarts, {{"reason", reason}}, static_cast<double>(count));
  }
  return {build, ready, connections, budget, throttled, evictions, restarts};
}

void AddRunnerGauges(const MetricsMoment& moment, std::vector<MetricFamily>& out) {
  MetricFamily up = Gauge("quire_runner_up", "1 for every model that is loaded");
  MetricFamily predicted =
      Gauge("quire_memory_predicted_bytes", "Memory that a loaded model was expected to take");
  MetricFamily resident = Gauge("quire_memory_rss_bytes", "Resident memory of a process");
  MetricFamily threads = Gauge("quire_cpu_threads", "Compute threads of a loaded model");
  AddValue(resident, {{"process", "quired"}}, ResidentBytes(::getpid()));
  for (const auto& runner : moment.runners) {
    AddValue(up, {{"model", runner.model}}, 1);
    AddValue(predicted, {{"model", runner.model}}, static_cast<double>(runner.predicted_bytes));
    AddValue(resident, {{"process", "runner:" + runner.model}}, ResidentBytes(runner.pid));
    if (runner.threads > 0) AddValue(threads, {{"model", runner.model}}, runner.threads);
  }
  MetricFamily loaded = Gauge("quire_model_loaded", "Models that are loaded");
  AddValue(loaded, {}, static_cast<double>(moment.runners.size()));
  for (MetricFamily* family : {&up, &predicted, &resident, &threads, &loaded})
    out.push_back(std::move(*family));
}

// What runners last said of themselves, once a second.
void AddBeats(const MetricsMoment& moment, std::vector<MetricFamily>& out) {
  MetricFamily load = Gauge("quire_model_load_seconds", "How long a loaded model took to load");
  MetricFamily idle = Gauge("quire_runner_last_progress_seconds", "Since a runner last got on, idle or not");
  MetricFamily steps = CounterFamily("quire_decode_steps_total", "Forward passes of a loaded model");
  MetricFamily cache = Gauge("quire_cache_bytes", "Caches of a loaded model");
  MetricFamily usage = Gauge("quire_cache_usage_ratio", "Share of the caches in use, snapshots included");
  MetricFamily snapshots = Gauge("quire_prefix_snapshots", "Prefixes kept for requests to come");
  MetricFamily bytes = Gauge("quire_prefix_snapshot_bytes", "What they take of the caches");
  MetricFamily evictions =
      CounterFamily("quire_prefix_snapshot_evictions_total", "Prefixes given up for others");
  for (const auto& runner : moment.runners) {
    const api::ipc::Beat& beat = runner.beat;
    const std::vector<ClientMetric::Label> model = {{"model", runner.model}};
    const auto tiered = [&] { return std::vector<ClientMetric::Label>{model[0], {"tier", "memory"}}; };
    AddValue(load, model, Seconds(runner.load_time));
    AddValue(idle, model, Seconds(runner.since_progress));
    AddValue(steps, model, static_cast<double>(beat.steps));
    AddValue(cache, {model[0], {"state", "used"}}, static_cast<double>(beat.cache_bytes_used));
    AddValue(cache, {model[0], {"state", "reserved"}}, static_cast<double>(runner.cache_bytes));
    if (runner.cache_bytes > 0) {
      const auto used = static_cast<double>(beat.cache_bytes_used);
      AddValue(usage, model, used / static_cast<double>(runner.cache_bytes));
    }
    AddValue(snapshots, tiered(), static_cast<double>(beat.prefix_snapshots));
    AddValue(bytes, tiered(), static_cast<double>(beat.prefix_bytes));
    AddValue(evictions, tiered(), static_cast<double>(beat.prefix_evictions));
  }
  for (MetricFamily* family : {&load, &idle, &steps, &cache, &usage, &snapshots, &bytes, &evictions}) {
    out.push_back(std::move(*family));
  }
}

void AddRequestGauges(const MetricsMoment& moment, bool vllm_names, std::vector<MetricFamily>& out) {
  const auto add = [&](const char* running_name, const char* waiting_name, const char* label) {
    MetricFamily running = Gauge(running_name, "Requests that a runner works on");
    MetricFamily waiting = Gauge(waiting_name, "Requests that no runner has taken up yet");
    for (const auto& [model, requests] : moment.requests) {
      AddValue(running, {{label, model}}, requests.running);
      AddValue(waiting, {{label, model}}, requests.waiting);
    }
    out.push_back(std::move(running));
    out.push_back(std::move(waiting));
  };
  add("quire_requests_running", "quire_requests_waiting", "model");
  if (vllm_names) add("vllm:num_requests_running", "vllm:num_requests_waiting", "model_name");
}

}  // namespace

struct Metrics::Inside {
  explicit Inside(bool names) : vllm_names(names) {}

  Family<Counter>& CounterOf(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Family<Histogram>& HistogramOf(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }

  bool vllm_names;
  prometheus::Registry registry;
  Family<Counter>& requests = CounterOf("quire_requests_total", "Requests answered");
  Family<Counter>& rejected =
      CounterOf("quire_requests_rejected_total", "Requests turned away before any work");
  Family<Counter>& cancelled =
      CounterOf("quire_requests_cancelled_total", "Requests whose client left before the end");
  Family<Counter>& prompt_tokens =
      CounterOf("quire_prompt_tokens_total", "Prompt tokens, by where they came from");
  Family<Counter>& output_tokens = CounterOf("quire_generation_tokens_total", "Tokens generated");
  Family<Counter>& prompt_seconds =
      CounterOf("quire_prompt_compute_seconds_total", "From the start of a prompt to its first token");
  Family<Counter>& output_seconds =
      CounterOf("quire_decode_compute_seconds_total", "From a request's first token to its last");
  Family<Counter>& cache_queries =
      CounterOf("quire_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  Family<Counter>& cache_hits = CounterOf("quire_prefix_cache_hits_total", "Prompt tokens that it had");
  Family<Counter>& cache_misses =
      CounterOf("quire_prefix_cache_misses_total", "Requests whose prompt it had not all of, by reason");
  Family<Counter>& drafted = CounterOf("quire_spec_draft_tokens_total", "Tokens guessed ahead");
  Family<Counter>& accepted =
      CounterOf("quire_spec_accepted_tokens_total", "Tokens guessed ahead that were right");
  Family<Counter>& accepted_at =
      CounterOf("quire_spec_accepted_by_position_total", "The same, by their position in a round");
  Family<Counter>& rollback =
      CounterOf("quire_spec_rollback_seconds_total", "Spent on leaving wrong guesses behind");
  Family<Histogram>& duration =
      HistogramOf("quire_request_duration_seconds", "From a request's first byte to its end");
  Family<Histogram>& queue =
      HistogramOf("quire_queue_time_seconds", "Until a runner took a request's prompt");
  Family<Histogram>& first_token =
      HistogramOf("quire_time_to_first_token_seconds", "Until a request's first token");
  Family<Histogram>& gaps =
      HistogramOf("quire_inter_token_latency_seconds", "Between two tokens of one stream");
  Family<Histogram>& per_token =
      HistogramOf("quire_time_per_output_token_seconds", "Mean time of a request's tokens after the first");
};

Metrics::Metrics(bool vllm_names) : inside_(std::make_unique<Inside>(vllm_names)) {}

Metrics::~Metrics() = default;

void Metrics::Observe(const RequestLog& log, std::chrono::steady_clock::time_point now) {
  Inside& in = *inside_;
  const std::string endpoint = log.route.empty() ? "other" : log.route;
  in.requests.Add({{"model", log.stored_model}, {"endpoint", endpoint}, {"code", std::to_string(log.status)}})
      .Increment();
  if (const auto reason = RejectionOf(log); !reason.empty())
    in.rejected.Add({{"reason", std::string(reason)}}).Increment();
  if (log.stored_model.empty()) return;

  const Labels model = {{"model", log.stored_model}};
  const bool left = log.status == 499 || log.error == "client gone";
  if (left) in.cancelled.Add({{"model", log.stored_model}, {"stage", std::string(StageOf(log))}}).Increment();
  in.duration.Add(model, kLongBuckets).Observe(Seconds(now - log.start));
  if (log.queued) in.queue.Add(model, kLongBuckets).Observe(Seconds(*log.queued));
  if (log.first_token) in.first_token.Add(model, kLongBuckets).Observe(Seconds(*log.first_token));
  if (log.prompt_tokens) {
    const int32_t cached = std::clamp(log.cached_tokens.value_or(0), 0, *log.prompt_tokens);
    in.prompt_tokens.Add({{"model", log.stored_model}, {"source", "computed"}})
        .Increment(*log.prompt_tokens - cached);
    in.prompt_tokens.Add({{"model", log.stored_model}, {"source", "cached"}}).Increment(cached);
    in.cache_queries.Add(model).Increment(*log.prompt_tokens);
    in.cache_hits.Add(model).Increment(cached);
    if (!log.miss.empty()) {
      in.cache_misses.Add({{"model", log.stored_model}, {"reason", MissReason(log.miss)}}).Increment();
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
      in.accepted_at.Add({{"model", log.stored_model}, {"position", std::to_string(i + 1)}})
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

std::string Metrics::Text(const MetricsMoment& moment) const {
  std::vector<MetricFamily> families = ProcessGauges(moment);
  AddRunnerGauges(moment, families);
  AddBeats(moment, families);
  AddRequestGauges(moment, inside_->vllm_names, families);
  for (MetricFamily& family : inside_->registry.Collect()) families.push_back(std::move(family));
  std::erase_if(families, [](const MetricFamily& family) { return family.metric.empty(); });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire::server
