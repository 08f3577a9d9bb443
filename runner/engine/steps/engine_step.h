// One step: plan, reserve, compute, sample. Engine thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/hybrid_cache.h"
#include "runner/constraint/mask_turns.h"
#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/shares/sampling_share.h"
#include "runner/engine/shares/step_plan.h"
#include "runner/engine/steps/engine_admission.h"
#include "runner/engine/steps/engine_draft.h"
#include "runner/engine/steps/engine_images.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/models/model.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::engine {

class BatchStep {
 public:
  struct Last {
    int32_t sequences = 0;
    int32_t decoding = 0;
    int32_t prefill_tokens = 0;
    int32_t draft_tokens = 0;
    std::chrono::nanoseconds took{};
  };
  struct Counters {
    uint64_t steps = 0;
    uint64_t tokens_computed = 0;            // that belong to sequences, without rejected drafts
    uint64_t prompt_tokens_computed = 0;     // of prompts, those computed again after a preemption included
    std::chrono::nanoseconds step_time{};    // of all steps, with all that follows from their logits
    std::chrono::nanoseconds kernel_time{};  // of that, inside kernels
  };

  // All outlive it.
  BatchStep(EngineState& state, Admission& admission, Drafts& drafts, const PromptImages& images)
      : state_(state),
        admission_(admission),
        drafts_(drafts),
        images_(images),
        rotate_keys_(state.model.model->key_rotation()) {}

  bool Run();  // false when nobody can go on

  const Last& last() const { return last_; }
  const Counters& counters() const { return counters_; }
  // Time of a prompt token; 0: not measured.
  double token_seconds() const { return budget_.token_seconds(); }
  size_t result_bytes() const { return (logits_.capacity() + hidden_.capacity()) * sizeof(float); }

 private:
  bool PrepareMasks();  // false: some are not there yet
  void BoundParseMemory();
  void ShareSampling();
  std::chrono::nanoseconds SamplingCostOf(const ActiveRequest& request) const;  // 0: unknown
  void UpdateShares();
  int32_t PromptTokensBeside(int32_t decoding) const;  // of the next step
  void PlanNext(std::vector<StepItem>& items);
  cache::OwnedStep Begin(std::vector<StepItem>& items);
  void FillBatch(const std::vector<StepItem>& items, models::Batch& batch);
  void Advance(const std::vector<StepItem>& items, int32_t prefill);
  std::chrono::nanoseconds Sample(const std::vector<StepItem>& items);  // what that took
  void Score(ActiveGeneration& generation, std::span<const float> logits);
  void Pool(const std::vector<StepItem>& items);
  void Shift(ActiveRequest& request);

  EngineState& state_;
  Admission& admission_;
  Drafts& drafts_;
  const PromptImages& images_;
  const cache::RotateKeys rotate_keys_;
  PrefillBudget budget_;
  SamplingShare sampling_share_;
  // The times of the last token of each kind.
  std::array<std::chrono::nanoseconds, TokenChoice::kKinds> sampling_times_ = {};
  constraint::MaskTurns mask_turns_;

  // Memory that steps reuse: decoding allocates none.
  struct Scratch {
    std::vector<SequenceState> states;      // of the running ones
    std::vector<PartyState> parties;        // that have a running request
    std::vector<const fair::PartyId*> ids;  // theirs
    std::vector<SamplingShare::Sequence> sampling;
    std::vector<constraint::MaskRequest> masks;
    std::vector<fair::PartyId> going_on;
    std::vector<StepItem> items;
    std::vector<cache::Append> appends;
    models::Batch batch;
    std::vector<bool> scheduled;  // of the running ones
  };
  Scratch scratch_;
  std::vector<float> logits_;  // [logit rows, vocab]
  std::vector<float> hidden_;  // [hidden rows, hidden size]
  sampler::Workspace workspace_;
  Last last_;
  Counters counters_;
};

}  // namespace quire::runner::engine
