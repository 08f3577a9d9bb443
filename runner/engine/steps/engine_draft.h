// Speculative decoding: draft tokens are computed together with the newest token, and those that the sampler
// chooses are kept. Every token is sampled from the logits it would have been sampled from without a draft,
// so the output does not change. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "api/base/ids.h"
#include "runner/draft/draft_length_controller.h"
#include "runner/draft/drafter.h"
#include "runner/engine/shares/step_plan.h"
#include "runner/engine/steps/engine_state.h"
#include "runner/models/model.h"
#include "runner/sampler/sampler.h"

namespace quire::runner::engine {

class Drafts {
 public:
  explicit Drafts(EngineState& state) : state_(state) {}  // which outlives it

  // A request runs (again), or its context was shifted.
  void Start(ActiveRequest& request, const PrefixReuse::Outcome& reuse);
  void End(ActiveRequest& request);  // before its sequence is gone

  void Propose();                             // for every sequence that decodes
  void Attach(std::vector<StepItem>& items);  // opens their transactions
  bool Discard();                             // false where there are none

  // For a step; `confirmed`: its tokens of the request that are no drafts.
  void AddHiddenRows(const ActiveRequest& request, int32_t begin, int32_t confirmed,
                     models::Batch& batch) const;
  // Samples, and closes the transaction. How many draft tokens were rejected. `logits`: of the request;
  // `hidden`: of the step.
  int32_t Verify(ActiveRequest& request, const StepItem& item, std::span<const float> logits,
                 std::span<const float> hidden, sampler::Workspace& workspace);
  // The first `kept` of the request's rows are in the caches now.
  void StoreHidden(ActiveRequest& request, std::span<const float> hidden, int32_t confirmed,
                   int32_t kept) const;

  draft::DraftLengthController& lengths() { return lengths_; }
  uint64_t drafted() const { return drafted_; }
  uint64_t accepted() const { return accepted_; }

 private:
  void ChooseSource(ActiveRequest& request, int32_t rows);
  void RunDrafter();

  EngineState& state_;
  draft::DraftLengthController lengths_;
  uint64_t drafted_ = 0, accepted_ = 0;  // tokens so far
  // Memory that steps reuse.
  std::vector<draft::Candidate> rounds_;
  std::vector<draft::DraftRequest> requests_;
  std::vector<api::TokenId> rows_;  // of one sequence
};

}  // namespace quire::runner::engine
