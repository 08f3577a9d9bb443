// GET /metrics, and what it says after requests.
#include "server/routes/metrics_route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

RequestLog Answered() {
  RequestLog log;
  log.start = std::chrono::steady_clock::time_point(10s);
  log.route = "/api/chat";
  log.path = "/api/chat";
  log.model = "demo";
  log.stored_model = "demo:latest";
  log.status = 200;
  log.queued = 20ms;
  log.first_token = 200ms;
  log.prompt_tokens = 100;
  log.cached_tokens = 60;
  log.miss = "diverged@60";
  log.output_tokens = 11;
  log.prompt_compute = 180ms;
  log.output_compute = 1s;
  log.draft = {.rounds = 3, .drafted = 6, .accepted_by_position = {2, 1}, .rollback_ns = 500'000'000};
  return log;
}

constexpr auto kEnd = std::chrono::steady_clock::time_point(12s);

// Names that clients make up by creating models: their series stay.
TEST(Metrics, ManyModelsShareALabel) {
  Metrics metrics(true);
  RequestLog log = Answered();
  for (int i = 0; i < 1000; ++i) {
    log.stored_model = "model-" + std::to_string(i);
    metrics.Observe(log, kEnd);
  }
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("quire_generation_tokens_total{model=\"model-127\"} 11\n"));
  EXPECT_THAT(text, HasSubstr("quire_generation_tokens_total{model=\"other\"} 9592\n"));
  EXPECT_THAT(text, Not(HasSubstr("model-128")));
}

TEST(Metrics, CountsAnAnsweredRequest) {
  Metrics metrics(false);
  RequestLog log = Answered();
  const auto token = log.start + 200ms;
  log.gaps.Record(token, 1);
  log.gaps.Record(token + 4ms, 1);
  log.gaps.Record(token + 64ms, 2);  // 30 ms each
  log.gaps.Record(token + 9s, 0);
  metrics.Observe(log, kEnd);
  metrics.Observe(log, kEnd);
  const std::string text = metrics.Text({});
  for (const char* line : {
           "# TYPE quire_requests_total counter",
           "quire_requests_total{code=\"200\",endpoint=\"/api/chat\",model=\"demo:latest\"} 2",
           "quire_prompt_tokens_total{model=\"demo:latest\",source=\"computed\"} 80",
           "quire_prompt_tokens_total{model=\"demo:latest\",source=\"cached\"} 120",
           "quire_prefix_cache_queries_total{model=\"demo:latest\"} 200",
           "quire_prefix_cache_hits_total{model=\"demo:latest\"} 120",
           "quire_prefix_cache_misses_total{model=\"demo:latest\",reason=\"diverged\"} 2",
           "quire_generation_tokens_total{model=\"demo:latest\"} 22",
           "quire_spec_draft_tokens_total{model=\"demo:latest\"} 12",
           "quire_spec_accepted_tokens_total{model=\"demo:latest\"} 6",
           "quire_spec_accepted_by_position_total{model=\"demo:latest\",position=\"1\"} 4",
           "quire_spec_accepted_by_position_total{model=\"demo:latest\",position=\"2\"} 2",
           "quire_spec_rollback_seconds_total{model=\"demo:latest\"} 1",
           "quire_time_to_first_token_seconds_bucket{model=\"demo:latest\",le=\"0.1\"} 0",
           "quire_time_to_first_token_seconds_bucket{model=\"demo:latest\",le=\"0.25\"} 2",
           "quire_request_duration_seconds_sum{model=\"demo:latest\"} 4",
           "quire_inter_token_latency_seconds_bucket{model=\"demo:latest\",le=\"0.005\"} 2",
           "quire_inter_token_latency_seconds_bucket{model=\"demo:latest\",le=\"0.025\"} 2",
           "quire_inter_token_latency_seconds_bucket{model=\"demo:latest\",le=\"0.05\"} 6",
           "quire_inter_token_latency_seconds_count{model=\"demo:latest\"} 6",
           "quire_time_per_output_token_seconds_count{model=\"demo:latest\"} 2",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, CountsARequestUnderVllmsNames) {
  Metrics metrics(true);
  RequestLog log = Answered();
  log.finish = "stop";
  log.gaps.Record(log.start + 200ms, 1);
  log.gaps.Record(log.start + 204ms, 1);
  metrics.Observe(log, kEnd);
  log.status = 499;
  metrics.Observe(log, kEnd);
  const std::string text = metrics.Text({});
  const std::string labels = "{engine=\"0\",model_name=\"demo:latest\"";
  for (const std::string& line :
       {"vllm:prompt_tokens_total" + labels + "} 200", "vllm:generation_tokens_total" + labels + "} 22",
        "vllm:prefix_cache_queries_total" + labels + "} 200",
        "vllm:prefix_cache_hits_total" + labels + "} 120",
        "vllm:spec_decode_num_drafts_total" + labels + "} 6",
        "vllm:spec_decode_num_draft_tokens_total" + labels + "} 12",
        "vllm:spec_decode_num_accepted_tokens_total" + labels + "} 6",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total" + labels + ",position=\"0\"} 4",
        "vllm:e2e_request_latency_seconds_sum" + labels + "} 4",
        "vllm:time_to_first_token_seconds_count" + labels + "} 2",
        "vllm:inter_token_latency_seconds_count" + labels + "} 2",
        "vllm:request_queue_time_seconds_count" + labels + "} 2",
        "vllm:request_inference_time_seconds_count" + labels + "} 2",
        "vllm:request_prefill_time_seconds_count" + labels + "} 2",
        "vllm:request_decode_time_seconds_sum" + labels + "} 2",
        "vllm:request_prompt_tokens_sum" + labels + "} 200",
        "vllm:request_generation_tokens_sum" + labels + "} 22"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{engine=\"0\",finished_reason=\"stop\""));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\""));
}

TEST(Metrics, CountsTheRefusedAndTheGone) {
  Metrics metrics(false);
  RequestLog refused;
  refused.path = "/api/chat";
  refused.route = "/api/chat";
  for (const int status : {401, 403, 429, 503}) {
    refused.status = status;
    metrics.Observe(refused, kEnd);
  }
  RequestLog gone = Answered();
  gone.status = 499;
  metrics.Observe(gone, kEnd);
  gone.first_token.reset();
  metrics.Observe(gone, kEnd);
  const std::string text = metrics.Text({});
  for (const char* reason : {"unauthorized", "forbidden", "limit", "unavailable"}) {
    EXPECT_THAT(text, HasSubstr(std::string("quire_requests_rejected_total{reason=\"") + reason + "\"} 1"));
  }
  EXPECT_THAT(text, HasSubstr("quire_requests_cancelled_total{model=\"demo:latest\",stage=\"decode\"} 1"));
  EXPECT_THAT(text, HasSubstr("quire_requests_cancelled_total{model=\"demo:latest\",stage=\"prefill\"} 1"));
}

// What another client asked for is not visible: its prefix counts as an unknown one.
TEST(Metrics, AnotherClientsPrefixCountsAsCold) {
  Metrics metrics(false);
  RequestLog log = Answered();
  for (const char* miss : {"salt", "cold"}) {
    log.miss = miss;
    metrics.Observe(log, kEnd);
  }
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("quire_prefix_cache_misses_total{model=\"demo:latest\",reason=\"cold\"} 2"));
  EXPECT_THAT(text, Not(HasSubstr("salt")));
}

// Client input never becomes a label: neither an unknown path nor an unknown model.
TEST(Metrics, LabelsAreBounded) {
  Metrics metrics(false);
  for (int i = 0; i < 100; ++i) {
    RequestLog log;
    log.path = "/secret/" + std::to_string(i);
    log.model = "made-up-" + std::to_string(i);
    log.id = "req_" + std::to_string(i);
    log.status = 404;
    metrics.Observe(log, kEnd);
  }
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("quire_requests_total{code=\"404\",endpoint=\"other\",model=\"\"} 100"));
  for (const char* word : {"secret", "made-up", "req_"}) EXPECT_THAT(text, Not(HasSubstr(word)));
}

TEST(Metrics, TellsOfTheMoment) {
  const MetricsSnapshot snapshot{.requests = {{"demo:latest", {.running = 3, .waiting = 1}}},
                                 .prefill = {{"demo:latest", {.pending_seconds = 2.5}}},
                                 .runners = {{.model = "demo:latest",
                                              .pid = 1,
                                              .predicted_bytes = 4096,
                                              .threads = 2,
                                              .load_time = 1500ms,
                                              .since_progress = 250ms,
                                              .cache_bytes = 2000,
                                              .heartbeat = {.steps = 77,
                                                            .cache_bytes_used = 500,
                                                            .prefix_snapshots = 5,
                                                            .prefix_bytes = 400,
                                                            .prefix_evictions = 6}}},
                                 .evictions = {{"memory", 2}},
                                 .restarts = {{"killed", 3}},
                                 .memory_budget_bytes = 8192,
                                 .connections = 7,
                                 .log_lines_dropped = 9,
                                 .ready = false};
  const std::string text = Metrics(true).Text(snapshot);
  for (const char* line : {
           "quire_requests_running{model=\"demo:latest\"} 3",
           "quire_requests_waiting{model=\"demo:latest\"} 1",
           "vllm:num_requests_running{engine=\"0\",model_name=\"demo:latest\"} 3",
           "vllm:num_requests_waiting{engine=\"0\",model_name=\"demo:latest\"} 1",
           "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"demo:latest\"} 0.25",
           "vllm:cache_config_info{engine=\"0\",model_name=\"demo:latest\",cache_bytes=\"2000\"",
           "vllm:lora_requests_info{max_lora=\"0\"",
           "quire_pending_prefill_seconds{model=\"demo:latest\"} 2.5",
           "quire_runner_up{model=\"demo:latest\"} 1",
           "quire_memory_predicted_bytes{model=\"demo:latest\"} 4096",
           "quire_cpu_threads{model=\"demo:latest\"} 2",
           "quire_connections 7",
           "quire_log_lines_dropped_total 9",
           "quire_memory_budget_bytes 8192",
           "quire_model_load_seconds{model=\"demo:latest\"} 1.5",
           "quire_runner_last_progress_seconds{model=\"demo:latest\"} 0.25",
           "# TYPE quire_engine_steps_total counter",
           "quire_engine_steps_total{model=\"demo:latest\"} 77",
           "quire_cache_bytes{model=\"demo:latest\",state=\"used\"} 500",
           "quire_cache_bytes{model=\"demo:latest\",state=\"reserved\"} 2000",
           "quire_cache_usage_ratio{model=\"demo:latest\"} 0.25",
           "quire_prefix_snapshots{model=\"demo:latest\",tier=\"memory\"} 5",
           "quire_prefix_snapshot_bytes{model=\"demo:latest\",tier=\"memory\"} 400",
           "quire_prefix_snapshot_evictions_total{model=\"demo:latest\",tier=\"memory\"} 6",
           "quire_model_evictions_total{reason=\"memory\"} 2",
           "quire_runner_restarts_total{reason=\"killed\"} 3",
           "quire_ready 0",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(Metrics(false).Text(snapshot), Not(HasSubstr("vllm:")));
}

// A scrape while a runner holds a request: it is answered at once, and the request shows as waiting.
TEST(Metrics, AScrapeDoesNotWaitForRunners) {
  testing::TestDaemon daemon;
  daemon.backend().script.block_submit = true;
  testing::RawClient held(daemon.port());
  held.Send(
      testing::PostBytes("/api/chat", R"({"model":"demo","messages":[{"role":"user","content":"Hi"}]})"));
  daemon.backend().blocked.get_future().wait();
  std::string text;
  daemon.OnIoThread([&] {
    text = Metrics(false).Text(
        SnapshotOf(daemon.server(), PrefillEstimates(), std::chrono::steady_clock::now()));
  });
  EXPECT_THAT(text, HasSubstr("quire_requests_waiting{model=\"demo:latest\"} 1"));
  EXPECT_THAT(text, HasSubstr("quire_requests_running{model=\"demo:latest\"} 0"));
}

}  // namespace
}  // namespace quire::server
