// Which tokens the next engine step computes. A pure function of the running sequences' state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::runner::engine {

// What planning needs to know of one running sequence.
struct SequenceState {
  int32_t prefill_left = 0;  // tokens to compute before the next one is sampled; 0 = decoding
  int32_t decode_left = 1;   // decoding: the newest token, behind those that its format left no choice about
  bool reader_full = false;  // its client has as many deltas untaken as it may: it waits
  int64_t passed_over = 0;   // prefill tokens that others got while it got none
  size_t tenant = 0;         // index into the tenants given to PlanStep
};

// What planning needs to know of whoever the sequences belong to (fair_share.h).
struct TenantState {
  double served = 0;  // tokens so far, divided by the weight
  double weight = 1;
};

struct StepItem {
  size_t sequence = 0;  // index into the span given to PlanStep
  int32_t tokens = 0;
};

// Every sequence waits whose reader does not keep up. Of the others every decoding one gets what it has left.
// `prefill_tokens` more go to prompts: to the tenant served least, and of its prompts to the shortest
// remaining first. Each kAgeing tokens that passed a prompt over count as one token fewer remaining, so that
// a long one is not overtaken for ever. Items are in ascending order of `sequence`; empty when nobody can go
// on.
std::vector<StepItem> PlanStep(std::span<const SequenceState> sequences, std::span<const TenantState> tenants,
                               int32_t prefill_tokens);

// The same into `items`. `tenants` is scratch: it has what they were served in this step too.
void PlanStep(std::span<const SequenceState> sequences, std::span<TenantState> tenants,
              int32_t prefill_tokens, std::vector<StepItem>& items);

inline constexpr int64_t kAgeing = 4;

}  // namespace quire::runner::engine
