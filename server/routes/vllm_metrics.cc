#include "server/routes/vllm_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <string>
#include <utility>

namespace quire::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using Bounds = prometheus::Histogram::BucketBoundaries;
using CounterSet = prometheus::Family<prometheus::Counter>;
using HistogramSet = prometheus::Family<prometheus::Histogram>;

// vLLM's, and what prefill on CPUs takes.
const Bounds kLatencyBounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200};
const Bounds kTokenGapBounds(TokenGaps::kBounds.begin(), TokenGaps::kBounds.end());
const Bounds kTokenBounds = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                             1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

using VllmLabels = std::vector<ClientMetric::Label>;

VllmLabels LabelsOf(const std::string& model) { return {{"engine", "0"}, {"model_name", model}}; }

MetricFamily VllmGauge(const char* name, const char* help) {
  return {.name = name, .help = help, .type = prometheus::MetricType::Gauge, .metric = {}};
}

void AddGauge(MetricFamily& family, VllmLabels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

double InSeconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

struct VllmMetrics::Impl {
  CounterSet& Counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  HistogramSet& Histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
  }

  void ObserveTimes(const RequestLog& log, const prometheus::Labels& model, double seconds);
  void ObserveTokens(const RequestLog& log, const prometheus::Labels& model);
  void ObserveDrafts(const RequestLog& log, const prometheus::Labels& model);

  prometheus::Registry registry;
  CounterSet& prompt_tokens = Counter("vllm:prompt_tokens_total", "Prompt tokens processed");
  CounterSet& generation_tokens = Counter("vllm:generation_tokens_total", "Tokens generated");
  CounterSet& success = Counter("vllm:request_success_total", "Requests finished, by reason");
  CounterSet& queries = Counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache");
  CounterSet& hits = Counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache");
  CounterSet& drafts = Counter("vllm:spec_decode_num_drafts_total", "Drafts verified");
  CounterSet& draft_tokens = Counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens proposed");
  CounterSet& accepted = Counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted");
  CounterSet& accepted_at = Counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                                    "Draft tokens accepted, by position in the draft");
  HistogramSet& first_token = Histogram("vllm:time_to_first_token_seconds", "Time to first token");
  HistogramSet& gaps = Histogram("vllm:inter_token_latency_seconds", "Time between two tokens");
  HistogramSet& per_token =
      Histogram("vllm:time_per_output_token_seconds", "Mean time per output token after the first");
  HistogramSet& per_token_of_request =
      Histogram("vllm:request_time_per_output_token_seconds", "Mean time per output token after the first");
  HistogramSet& duration = Histogram("vllm:e2e_request_latency_seconds", "Time of a request");
  HistogramSet& queue = Histogram("vllm:request_queue_time_seconds", "Time until the prompt was admitted");
  HistogramSet& inference = Histogram("vllm:request_inference_time_seconds", "Time of prefill and decode");
  HistogramSet& prefill = Histogram("vllm:request_prefill_time_seconds", "Time of prefill");
  HistogramSet& decode = Histogram("vllm:request_decode_time_seconds", "Time of decode");
  HistogramSet& request_prompt = Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request");
  HistogramSet& request_output = Histogram("vllm:request_generation_tokens", "Generated tokens of a request");
};

void VllmMetrics::Impl::ObserveTimes(const RequestLog& log, const prometheus::Labels& model, double seconds) {
  duration.Add(model, kLatencyBounds).Observe(seconds);
  if (log.queued) queue.Add(model, kLatencyBounds).Observe(InSeconds(*log.queued));
  if (log.first_token) first_token.Add(model, kLatencyBounds).Observe(InSeconds(*log.first_token));
  prefill.Add(model, kLatencyBounds).Observe(InSeconds(log.prompt_compute));
  decode.Add(model, kLatencyBounds).Observe(InSeconds(log.output_compute));
  inference.Add(model, kLatencyBounds).Observe(InSeconds(log.prompt_compute + log.output_compute));
  if (const int32_t tokens = log.output_tokens.value_or(0); tokens > 1) {
    const double each = InSeconds(log.output_compute) / (tokens - 1);
    per_token.Add(model, kTokenGapBounds).Observe(each);
    per_token_of_request.Add(model, kTokenGapBounds).Observe(each);
  }
  if (log.gaps.sum > 0) {
    const std::vector<double> counts(log.gaps.counts.begin(), log.gaps.counts.end());
    gaps.Add(model, kTokenGapBounds).ObserveMultiple(counts, log.gaps.sum);
  }
}

void VllmMetrics::Impl::ObserveTokens(const RequestLog& log, const prometheus::Labels& model) {
  const int32_t prompt = log.prompt_tokens.value_or(0);
  const int32_t output = log.output_tokens.value_or(0);
  prompt_tokens.Add(model).Increment(prompt);
  generation_tokens.Add(model).Increment(output);
  queries.Add(model).Increment(prompt);
  hits.Add(model).Increment(std::clamp(log.cached_tokens.value_or(0), 0, prompt));
  request_prompt.Add(model, kTokenBounds).Observe(prompt);
  request_output.Add(model, kTokenBounds).Observe(output);
}

void VllmMetrics::Impl::ObserveDrafts(const RequestLog& log, const prometheus::Labels& model) {
  if (log.draft.rounds <= 0) return;
  drafts.Add(model).Increment(log.draft.rounds);
  draft_tokens.Add(model).Increment(log.draft.drafted);
  accepted.Add(model).Increment(log.draft.accepted());
  for (size_t i = 0; i < log.draft.accepted_by_position.size(); ++i) {
    prometheus::Labels labels = model;
    labels["position"] = std::to_string(i);  // vLLM counts from 0
    accepted_at.Add(labels).Increment(log.draft.accepted_by_position[i]);
  }
}

VllmMetrics::VllmMetrics() : impl_(std::make_unique<Impl>()) {}

VllmMetrics::~VllmMetrics() = default;

void VllmMetrics::Observe(const RequestLog& log, const std::string& model,
                          std::chrono::steady_clock::time_point now) {
  if (log.stored_model.empty() || !log.prompt_tokens) return;
  const prometheus::Labels labels = {{"engine", "0"}, {"model_name", model}};
  impl_->ObserveTimes(log, labels, InSeconds(now - log.start));
  impl_->ObserveTokens(log, labels);
  impl_->ObserveDrafts(log, labels);
  const bool left = log.status == 499 || log.error == "client gone";
  if (!left && log.finish != "stop" && log.finish != "length") return;
  prometheus::Labels reason = labels;
  reason["finished_reason"] = left ? "abort" : log.finish;
  impl_->success.Add(reason).Increment();
}

std::vector<MetricFamily> VllmMetrics::Collect(const MetricsSnapshot& snapshot) const {
  MetricFamily running = VllmGauge("vllm:num_requests_running", "Requests being processed by a runner");
  MetricFamily waiting = VllmGauge("vllm:num_requests_waiting", "Requests waiting for a runner");
  MetricFamily usage = VllmGauge("vllm:kv_cache_usage_perc", "Fraction of the cache in use; 1 = all of it");
  MetricFamily old_usage =
      VllmGauge("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc by its older name");
  MetricFamily config = VllmGauge("vllm:cache_config_info", "Size of the caches");
  MetricFamily adapters = VllmGauge("vllm:lora_requests_info", "Adapters in use: there are none");
  for (const auto& [model, requests] : snapshot.requests) {
    AddGauge(running, LabelsOf(model), requests.running);
    AddGauge(waiting, LabelsOf(model), requests.waiting);
  }
  for (const auto& runner : snapshot.runners) {
    if (runner.cache_bytes > 0) {
      const double used =
          static_cast<double>(runner.heartbeat.cache_bytes_used) / static_cast<double>(runner.cache_bytes);
      AddGauge(usage, LabelsOf(runner.model), used);
      AddGauge(old_usage, LabelsOf(runner.model), used);
    }
    VllmLabels labels = LabelsOf(runner.model);
    labels.push_back({"cache_bytes", std::to_string(runner.cache_bytes)});
    labels.push_back({"enable_prefix_caching", "True"});
    AddGauge(config, std::move(labels), 1);
  }
  if (!snapshot.runners.empty()) {
    AddGauge(adapters, {{"max_lora", "0"}, {"running_lora_adapters", ""}, {"waiting_lora_adapters", ""}}, 0);
  }
  std::vector<MetricFamily> families = impl_->registry.Collect();
  for (MetricFamily* family : {&running, &waiting, &usage, &old_usage, &config, &adapters})
    families.push_back(std::move(*family));
  return families;
}

}  // namespace quire::server
