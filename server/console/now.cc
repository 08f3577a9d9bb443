#include "server/console/now.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "server/routes/resident_memory.h"

namespace quire::server {
namespace {

using Json = nlohmann::ordered_json;
using TimePoint = std::chrono::steady_clock::time_point;

double Milliseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(time).count()) / 1000;
}

// Where a request is: it waits for its model or a place, its prompt is computed, or its answer is.
const char* PhaseOf(const RequestLog& log) {
  if (!log.queued) return "queued";
  return log.first_token ? "decode" : "prefill";
}

Json RequestOf(const RequestLog& log, TimePoint now) {
  Json out{{"id", log.id}, {"model", log.stored_model}, {"path", log.path}};
  if (!log.key.empty()) out["key"] = log.key;
  out["elapsed_ms"] = Milliseconds(now - log.start);
  if (log.queued) out["queue_ms"] = Milliseconds(*log.queued);
  if (log.first_token) out["first_token_ms"] = Milliseconds(*log.first_token);
  if (log.prompt_tokens) out["prompt_tokens"] = *log.prompt_tokens;
  if (log.cached_tokens) out["cached_tokens"] = *log.cached_tokens;
  if (!log.miss.empty()) out["miss"] = log.miss;
  out["output_tokens"] = log.output_tokens.value_or(log.streamed_tokens);
  if (log.first_token && log.streamed_tokens > 1) {
    const double seconds = std::chrono::duration<double>(now - log.start - *log.first_token).count();
    if (seconds > 0) out["tokens_per_second"] = (log.streamed_tokens - 1) / seconds;
  }
  return out;
}

Json EndedOf(const RecentRequests::Entry& entry) {
  const RequestLog& log = entry.log;
  Json out = RequestOf(log, entry.ended);
  out["ended_at_ms"] = duration_cast<std::chrono::milliseconds>(entry.ended_at.time_since_epoch()).count();
  out["status"] = log.status;
  if (!log.finish.empty()) out["finish"] = log.finish;
  if (!log.error.empty()) out["error"] = log.error;
  out["prefill_ms"] = Milliseconds(log.prompt_compute);
  out["decode_ms"] = Milliseconds(log.output_compute);
  if (log.draft.drafted > 0) {
    out["draft_tokens"] = log.draft.drafted;
    out["draft_tokens_accepted"] = log.draft.accepted();
  }
  return out;
}

// What the caches hold comes from everybody's requests: it is for who may see those.
Json ModelOf(const scheduler::LoadedModel& model, bool with_caches) {
  Json out{{"name", model.spec.name},
           {"architecture", model.info.architecture},
           {"context_length", model.num_ctx},
           {"resident_bytes", ResidentBytes(model.runner_pid)},
           {"memory_bytes", model.memory_bytes},
           {"weight_bytes", model.info.weight_bytes},
           {"cache_bytes", model.info.cache_bytes},
           {"load_ms", Milliseconds(model.load_time)}};
  if (!with_caches) return out;
  const api::ipc::Heartbeat& beat = model.heartbeat;
  out["cache_bytes_used"] = beat.cache_bytes_used;
  out["prefix_bytes"] = beat.prefix_bytes;
  out["prefix_snapshots"] = beat.prefix_snapshots;
  out["prefix_evictions"] = beat.prefix_evictions;
  out["running"] = beat.running;
  out["waiting"] = beat.waiting;
  out["steps"] = beat.steps;
  return out;
}

bool Sees(const Viewer& viewer, const RequestLog& log) { return viewer.admin || viewer.key == log.key; }

}  // namespace

void RecentRequests::Add(const RequestLog& log, TimePoint now) {
  if (log.stored_model.empty()) return;
  entries_.push_front({log, now, std::chrono::system_clock::now()});
  if (entries_.size() > kMax) entries_.pop_back();
}

std::string EncodeNow(const NowSources& sources, const Viewer& viewer, TimePoint now) {
  Json models = Json::array(), requests = Json::array(), recent = Json::array();
  for (const scheduler::LoadedModel& model : sources.loaded_models()) {
    models.push_back(ModelOf(model, viewer.admin));
  }
  int others_running = 0, others_waiting = 0;
  sources.visit_requests([&](const RequestLog& log) {
    if (log.stored_model.empty()) return;
    if (!Sees(viewer, log)) {
      ++(log.queued ? others_running : others_waiting);
      return;
    }
    Json request = RequestOf(log, now);
    request["phase"] = PhaseOf(log);
    requests.push_back(std::move(request));
  });
  for (const RecentRequests::Entry& entry : sources.recent.entries()) {
    if (Sees(viewer, entry.log)) recent.push_back(EndedOf(entry));
  }
  const Json reply{{"memory_budget_bytes", sources.memory_budget_bytes()},
                   {"models", std::move(models)},
                   {"requests", std::move(requests)},
                   {"recent", std::move(recent)},
                   {"others", {{"running", others_running}, {"waiting", others_waiting}}}};
  return reply.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire::server
