// Which tokens the next engine step computes. A pure function of the running sequences' state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::engine {

// What planning needs to know of one running sequence.
struct SequenceState {
  int32_t prefill_left = 0;  // prompt tokens still to compute; 0 = decoding
  bool reader_full = false;  // its client has as many deltas untaken as it may: it waits
  int32_t steps_waited = 0;  // steps since it last got a prefill token
};

struct StepItem {
  size_t sequence = 0;  // index into the span given to PlanStep
  int32_t tokens = 0;
};

// Every decoding sequence whose reader keeps up gets one token. `prefill_tokens` more are shared out to
// prompts, shortest remaining first; each step of waiting counts as kAgeingTokens fewer remaining, so that a
// long prompt is not overtaken for ever. Items are in ascending order of `sequence`; empty when nobody can go
// on.
std::vector<StepItem> PlanStep(std::span<const SequenceState> sequences, int32_t prefill_tokens);

inline constexpr int32_t kAgeingTokens = 64;

}  // namespace quire::runner::engine
