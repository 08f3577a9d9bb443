#include "server/console/now.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/json/type.h"
#include "server/routes/handlers.h"
#include "server/routes/resident_memory.h"

namespace quire::server {
namespace {

using Json = api::Json;
using TimePoint = std::chrono::steady_clock::time_point;

double Milliseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::microseconds>(time).count()) / 1000;
}

// Where a request is: it waits for its model or a place, its prompt is computed, or its answer is.
const char* PhaseOf(const RequestLog& log) {
  if (!log.queued) return "queued";
  return log.first_token ? "decode" : "prefill";
}

// Only for the viewer's own prompts.
Json DivergenceOf(const api::Divergence& divergence) {
  return {{"at", divergence.at},
          {"shared", divergence.shared},
          {"prompt", divergence.prompt},
          {"cached", divergence.cached}};
}

Json RequestOf(const RequestLog& log, const Viewer& viewer, TimePoint now) {
  Json out{{"id", log.id}, {"model", log.stored_model}, {"path", log.path}};
  if (!log.key.empty()) out["key"] = log.key;
  out["elapsed_ms"] = Milliseconds(now - log.start);
  if (log.queued) out["queue_ms"] = Milliseconds(*log.queued);
  if (log.first_token) out["first_token_ms"] = Milliseconds(*log.first_token);
  if (log.prompt_tokens) out["prompt_tokens"] = *log.prompt_tokens;
  if (log.cached_tokens) out["cached_tokens"] = *log.cached_tokens;
  if (!log.miss.empty()) out["miss"] = MissForClients(log);
  if (log.divergence && log.isolation == viewer.isolation) out["divergence"] = DivergenceOf(*log.divergence);
  if (log.queued) {
    out["template_ms"] = Milliseconds(log.prompt_build);
    out["fetch_ms"] = Milliseconds(log.prefix_restore);
  }
  out["output_tokens"] = log.output_tokens.value_or(log.streamed_tokens);
  if (log.first_token && log.streamed_tokens > 1) {
    const double seconds = std::chrono::duration<double>(now - log.start - *log.first_token).count();
    if (seconds > 0) out["tokens_per_second"] = (log.streamed_tokens - 1) / seconds;
  }
  return out;
}

Json EndedOf(const RecentRequests::Entry& entry, const Viewer& viewer) {
  const RequestLog& log = entry.log;
  Json out = RequestOf(log, viewer, entry.ended);
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

// What the process and its caches hold comes from everybody's requests: it is for who may see those.
Json ModelOf(const scheduler::LoadedModel& model, bool with_contents) {
  Json out{{"name", NameShownTo(with_contents, model)},
           {"architecture", model.info.architecture},
           {"context_length", ContextShownTo(with_contents, model)},
           {"memory_bytes", model.memory_bytes},
           {"weight_bytes", model.info.weight_bytes},
           {"cache_bytes", model.info.cache_bytes},
           {"load_ms", Milliseconds(model.load_time)}};
  if (!with_contents) return out;
  const api::ipc::Heartbeat& beat = model.heartbeat;
  out["resident_bytes"] = ResidentBytes(model.runner_pid);
  out["cache_bytes_used"] = beat.cache_bytes_used;
  out["prefix_bytes"] = beat.prefix_bytes;
  out["prefix_snapshots"] = beat.prefix_snapshots;
  out["prefix_evictions"] = beat.prefix_evictions;
  out["running"] = beat.running;
  out["waiting"] = beat.waiting;
  out["steps"] = beat.steps;
  return out;
}

// What the engines said of the sequences of one exchange: one with several choices has several.
struct SequenceOf {
  const api::ipc::InspectedSequence* sequence = nullptr;
  const scheduler::EngineView::Origin* owner = nullptr;
};
using Sequences = std::multimap<std::string_view, SequenceOf>;

Sequences SequencesOf(const std::vector<scheduler::EngineView>& engines) {
  Sequences sequences;
  for (const scheduler::EngineView& view : engines) {
    for (size_t i = 0; i < view.owners.size(); ++i) {
      sequences.emplace(view.owners[i].exchange, SequenceOf{&view.engine.sequences[i], &view.owners[i]});
    }
  }
  return sequences;
}

const char* NameOf(api::ipc::WaitReason wait) {
  switch (wait) {
    case api::ipc::WaitReason::kNone:
      return "";
    case api::ipc::WaitReason::kPlace:
      return "place";
    case api::ipc::WaitReason::kPrefix:
      return "prefix";
    case api::ipc::WaitReason::kReader:
      return "reader";
  }
  return "";
}

// Where its prefill is, and how long the rest takes at the speed so far.
Json PrefillOf(const api::ipc::InspectedSequence& sequence, int32_t cached) {
  const int32_t done = sequence.computed_tokens - cached;
  const int32_t left = sequence.prompt_tokens - sequence.computed_tokens;
  Json prefill{{"computed_tokens", sequence.computed_tokens}, {"prompt_tokens", sequence.prompt_tokens}};
  if (done > 0 && left > 0) {
    prefill["remaining_ms"] = static_cast<double>(sequence.prefill_ns) / 1e6 * left / done;
  }
  return prefill;
}

void AddSequences(const RequestLog& log, const Sequences& sequences, Json& request) {
  auto wait = api::ipc::WaitReason::kNone;
  bool preempted = false;
  const api::ipc::InspectedSequence* prefill =
      nullptr;  // of several choices the first whose prompt is computed
  const auto [begin, end] = sequences.equal_range(log.id);
  for (auto each = begin; each != end; ++each) {
    const api::ipc::InspectedSequence& sequence = *each->second.sequence;
    if (sequence.wait != api::ipc::WaitReason::kNone) wait = sequence.wait;
    preempted |= sequence.preempted;
    if (prefill == nullptr && sequence.prefill_ns > 0 && log.prompt_tokens) prefill = &sequence;
  }
  if (wait != api::ipc::WaitReason::kNone) request["wait"] = NameOf(wait);
  if (preempted) request["preempted"] = true;
  if (prefill != nullptr) request["prefill"] = PrefillOf(*prefill, log.cached_tokens.value_or(0));
}

// How the machine is shared between keys now.
class Shares {
 public:
  void Add(const RequestLog& log, const Sequences& sequences) {
    const auto [begin, end] = sequences.equal_range(log.id);
    for (auto each = begin; each != end; ++each) {
      Share& share = shares_[log.key];
      share.weight = each->second.owner->weight;
      share.virtual_time = std::max(share.virtual_time, each->second.sequence->virtual_time);
      ++(each->second.sequence->computed_tokens > 0 ? share.running : share.waiting);
    }
  }
  Json Show(const Viewer& viewer) const {
    Json list = Json::array();
    for (const auto& [key, share] : shares_) {
      if (!viewer.admin && viewer.key != key) continue;
      Json& shown = list.emplace_back(Json{
          {"key", key}, {"weight", share.weight}, {"running", share.running}, {"waiting", share.waiting}});
      // A key enters at the virtual time of the others: it would tell a client how many tokens they computed.
      if (viewer.admin) shown["virtual_time"] = share.virtual_time;
    }
    return list;
  }

 private:
  struct Share {
    int32_t weight = 1;
    int32_t running = 0;
    int32_t waiting = 0;
    int64_t virtual_time = 0;
  };
  std::map<std::string, Share> shares_;  // by key
};

Json EngineOf(const api::ipc::EngineInspected& engine) {
  return {{"steps", engine.steps},
          {"step_ms", static_cast<double>(engine.step_ns) / 1e6},
          {"decoding", engine.decoding},
          {"prefilling", engine.prefilling},
          {"prefill_tokens", engine.prefill_tokens},
          {"draft_tokens", engine.draft_tokens},
          {"building", engine.building}};
}

Json ModelsOf(const NowSources& sources, const std::vector<scheduler::EngineView>& engines,
              const Viewer& viewer) {
  Json models = Json::array();
  for (const scheduler::LoadedModel& model : sources.loaded_models()) {
    Json& entry = models.emplace_back(ModelOf(model, viewer.admin));
    const auto engine = std::ranges::find(engines, model.runner_pid, &scheduler::EngineView::runner_pid);
    if (viewer.admin && engine != engines.end()) entry["engine"] = EngineOf(engine->engine);
  }
  return models;
}

Json LoadingOf(const NowSources& sources) {
  Json loading = Json::array();
  if (!sources.loading_models) return loading;
  for (const scheduler::LoadingModel& model : sources.loading_models()) {
    loading.push_back(Json{{"name", model.spec.name}, {"fraction", model.fraction}, {"stage", model.stage}});
  }
  return loading;
}

bool Sees(const Viewer& viewer, const RequestLog& log) { return viewer.admin || viewer.key == log.key; }

}  // namespace

void RecentRequests::Add(const RequestLog& log, TimePoint now) {
  if (log.stored_model.empty()) return;
  ++added_;
  entries_.push_front({log, now, std::chrono::system_clock::now()});
  if (entries_.size() > kMax) entries_.pop_back();
}

Viewer ViewerOf(const HttpRequest& request) {
  return {.key = request.identity, .admin = request.admin, .isolation = IsolationOf(request, "")};
}

std::string IsolationOf(const HttpRequest& request, std::string cache_salt) {
  return api::Client{.tenant = TenantOf(request), .cache_salt = std::move(cache_salt)}.IsolationKey();
}

std::string EncodeNow(const NowSources& sources, const Viewer& viewer, TimePoint now, bool with_recent) {
  Json requests = Json::array();
  const auto engines = sources.engines ? sources.engines() : std::vector<scheduler::EngineView>();
  const Sequences sequences = SequencesOf(engines);
  Shares shares;
  int others_running = 0, others_waiting = 0;
  sources.visit_requests([&](const RequestLog& log) {
    if (log.stored_model.empty()) return;
    shares.Add(log, sequences);
    if (!Sees(viewer, log)) {
      ++(log.queued ? others_running : others_waiting);
      return;
    }
    Json request = RequestOf(log, viewer, now);
    request["phase"] = PhaseOf(log);
    AddSequences(log, sequences, request);
    requests.push_back(std::move(request));
  });
  Json reply{{"viewer", {{"key", viewer.key}, {"admin", viewer.admin}}},
             {"memory_budget_bytes", sources.memory_budget_bytes()},
             {"models", ModelsOf(sources, engines, viewer)},
             {"loading", LoadingOf(sources)},
             {"requests", std::move(requests)},
             {"shares", shares.Show(viewer)},
             {"others", {{"running", others_running}, {"waiting", others_waiting}}}};
  if (with_recent) {
    Json& recent = reply["recent"] = Json::array();
    for (const RecentRequests::Entry& entry : sources.recent.entries()) {
      if (Sees(viewer, entry.log)) recent.push_back(EndedOf(entry, viewer));
    }
  }
  return reply.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire::server
