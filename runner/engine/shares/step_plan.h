// Which tokens the next engine step computes. A pure function of the running sequences' state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::engine {

// The planner's view of one running sequence.
struct SequenceState {
  int32_t prefill_left = 0;    // tokens to compute before the next one is sampled; 0 = decoding
  int32_t decode_left = 1;     // decoding: the newest token, behind the forced tokens
  bool backpressured = false;  // its client has no credit left: the sequence waits
  int64_t skipped_tokens = 0;  // aging: prefill tokens given to others while it got none
  size_t party = 0;            // index into the parties given to PlanStep
  bool scored = false;         // its prompt tokens have their logits computed
};

// The planner's view of a party (party_accounts.h).
struct PartyState {
  double virtual_time = 0;  // tokens so far, divided by the weight
  double weight = 1;
};

struct StepItem {
  size_t sequence = 0;  // index into the span given to PlanStep
  int32_t tokens = 0;
};

// Backpressured sequences wait. Every other decoding sequence gets its decode_left tokens. `prefill_tokens`
// more go to prompts: to the party with the smallest virtual time, and among its prompts to the shortest
// remaining first. Each kAging skipped tokens of a prompt count as one token fewer remaining, which prevents
// starvation of long prompts. Prompts that are scored get `scored_tokens` of them at most, together. Items
// are in ascending order of `sequence`; empty when nobody can go on.
std::vector<StepItem> PlanStep(std::span<const SequenceState> sequences, std::span<const PartyState> parties,
                               int32_t prefill_tokens, int32_t scored_tokens = INT32_MAX);

// The same into `items`. `parties` is scratch: its virtual times advance by the tokens of this step.
void PlanStep(std::span<const SequenceState> sequences, std::span<PartyState> parties, int32_t prefill_tokens,
              int32_t scored_tokens, std::vector<StepItem>& items);

inline constexpr int64_t kAging = 4;

}  // namespace quire::runner::engine
