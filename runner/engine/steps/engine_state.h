// What the parts of one engine share: the model, the caches, and the requests. Engine thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>

#include "cache/hybrid_cache.h"
#include "runner/draft/drafter.h"
#include "runner/engine/prompt/loaded_model.h"
#include "runner/engine/shares/party_accounts.h"
#include "runner/engine/shares/place_share.h"
#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/steps/active_request.h"
#include "runner/engine/steps/prefix_reuse.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::engine {

struct EngineLimits {
  int32_t running_max = 32;      // sequences in a batch
  int32_t prefill_tokens = 0;    // prompt tokens per step; 0 = by the time that steps take
  size_t cache_bytes = 0;        // of pages, slots and snapshots together
  size_t draft_cache_bytes = 0;  // of a draft model's, likewise
  bool prefix_cache = true;
  // The type of recurrent states in the prefix cache: kF32 keeps every bit, kBF16 and kQ8_0
  // (cache/stored_state.h) do not.
  cache::ElementType state_cache_type = cache::ElementType::kF32;
  // An engine without work for this long gives memory of its caches back to the system, if it has at least so
  // much that nothing holds: what a pause between two requests frees is left for the next.
  std::chrono::nanoseconds release_after = std::chrono::seconds(10);
  size_t release_bytes_min = size_t{64} << 20;
  int32_t draft_tokens = 0;                // per sequence and step; 0 = adaptive
  size_t parse_bytes = size_t{128} << 20;  // parse states of all answers' formats together
  int32_t check_invariants_every = 0;      // steps; a breach ends the process. 0 = never: it costs
  std::chrono::nanoseconds time_slice = PlaceRotation::kTimeSlice;  // of places that change hands
  std::function<std::chrono::nanoseconds()> sampling_clock =
      {};  // of a test, for what sampling takes; empty: the machine's
};

struct EngineState {
  // `cache` has the layout and the size of these limits.
  EngineState(LoadedModel loaded, const EngineLimits& engine_limits, int32_t threads,
              std::unique_ptr<cache::HybridCache> caches, std::unique_ptr<draft::Drafter> draft_source);

  std::expected<void, std::string> CheckInvariants() const;
  void Charge(const fair::PartyId& party, int64_t tokens) { shares.Charge(party, tokens * kTokenCost); }
  // Tokens so far, divided by the weight: the least is next.
  double VirtualTime(const fair::PartyId& party) const { return shares.TimeOf(party) / kTokenCost; }

  LoadedModel model;
  const EngineLimits limits;
  ThreadPool pool;
  const std::unique_ptr<cache::HybridCache> cache;  // outlives the store and all sequences
  PrefixReuse prefixes;
  const std::unique_ptr<draft::Drafter> drafter;  // outlives all draft states; null: none
  const int32_t context_max;                      // tokens of the longest sequence that the caches can hold

  ActiveRequests waiting;                                      // in order of arrival, preempted ones anywhere
  ActiveRequests running;                                      // in order of admission
  static constexpr int64_t kTokenCost = 1 << 16;               // weights up to 1,000,000 divide it
  PartyAccounts shares{StepTarget().tokens_max * kTokenCost};  // of everyone in both
};

}  // namespace quire::runner::engine
