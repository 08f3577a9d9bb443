// The step loop of one loaded model: admits requests whose prompts are built, computes ragged batches, and
// emits events.
//
// One thread, the engine thread, owns all of it: caches, sequences and batch. Each step takes every decoding
// sequence and prompt chunks up to what the step's time allows (step_plan.h, prefill_budget.h), so that a
// long prompt never holds up running streams for more than one step.
//
// Memory follows live tokens. When a step finds no room, even after the snapshot store gave up what it could,
// the youngest sequence is preempted: what it computed becomes a snapshot, and it is resumed once another has
// ended. Nothing of this shows in any answer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "api/ipc/messages.h"
#include "cache/hybrid_cache.h"
#include "runner/draft/drafter.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/steps/engine_admission.h"
#include "runner/engine/steps/engine_draft.h"
#include "runner/engine/steps/engine_images.h"
#include "runner/engine/steps/engine_input.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/engine/steps/engine_stats.h"
#include "runner/engine/steps/engine_step.h"
#include "runner/engine/steps/mailbox.h"

namespace quire::runner::engine {

class Engine {
 public:
  // `emit` may be called at any time on the engine thread. `engine_stats` outlives the engine.
  static api::Result<std::unique_ptr<Engine>> Create(LoadedModel model, const EngineLimits& limits,
                                                     int32_t threads, Mailbox<Input>& inbox,
                                                     EngineStats& engine_stats,
                                                     std::function<void(api::ipc::RequestEvent)> emit);

  // Prefixes also go to the daemon's snapshot tier. Before Run().
  void AddTier(std::unique_ptr<TierLink> link) { state_.prefixes.AddTier(std::move(link)); }

  // Serves until Stop.
  void Run();
  // After Run(): stores in the tier what is not there yet, for at most this long.
  void FlushTier(std::chrono::nanoseconds time) { state_.prefixes.FlushTier(time); }
  const cache::Layout& cache_layout() const { return state_.cache->layout(); }

  int64_t cache_bytes() const { return static_cast<int64_t>(state_.cache->stats().capacity_bytes); }
  // Tokens of the longest sequence that the caches can hold.
  int32_t context_max() const { return state_.context_max; }

  // For tests and tools; on the engine thread, or after Run() has returned.
  int64_t resident_weight_bytes() const { return state_.model.model->resident_bytes(); }
  int64_t resident_scratch_bytes() const;  // by the steps so far
  std::expected<void, std::string> CheckInvariants() const { return state_.CheckInvariants(); }
  struct Stats {
    cache::StoreStats store;
    cache::CacheStats cache;
    uint64_t steps = 0;
    uint64_t preemptions = 0;
    uint64_t drafted = 0, accepted = 0;      // draft tokens
    uint64_t tokens_computed = 0;            // that belong to sequences, without rejected drafts
    uint64_t prompt_tokens_computed = 0;     // of prompts, those computed again after a preemption included
    std::chrono::nanoseconds step_time{};    // of all steps, with all that follows from their logits
    std::chrono::nanoseconds kernel_time{};  // of that, inside kernels
  };
  Stats stats() const;

 private:
  Engine(LoadedModel model, const EngineLimits& limits, int32_t threads, Mailbox<Input>& inbox,
         EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit,
         std::unique_ptr<cache::HybridCache> cache, std::unique_ptr<draft::Drafter> drafter);

  bool HandleInput(Input input);  // false for Stop
  void AddCredit(const api::ipc::Credit& credit);
  void Enter(PromptBuilt built);
  bool ContinueReplays();
  // Nothing for a prompt that is to be answered.
  api::Result<std::optional<Embedding>> EmbeddingOf(const api::Prompt& prompt) const;
  void Cancel(api::RequestId id);
  void ReleaseIdleMemory(bool busy);
  void UpdateEngineStats();
  void Emit(api::RequestId id, api::Event event);

  EngineState state_;
  Mailbox<Input>& inbox_;
  EngineStats& engine_stats_;
  const std::function<void(api::ipc::RequestEvent)> emit_;
  std::unordered_map<uint64_t, int32_t>
      building_;  // arrived, prompt not built yet; credit that came meanwhile
  Clock::time_point last_work_{};
  PromptImages images_;
  Drafts drafts_;
  Admission admission_;
  BatchStep step_;
};

}  // namespace quire::runner::engine
