// Shares the making of masks between the answers of an engine step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "api/base/fair/fair_queue.h"
#include "api/base/fair/party.h"
#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// All masks of one step together take about as many steps through tries: some 20 ms.
inline constexpr uint64_t kMaskStepsPerStep = 2'000'000;
// The least piece of a mask, beside what it repeats.
inline constexpr uint64_t kMaskPieceMin = 10'000;

// An answer whose mask is asked for, or goes on in pieces, before the step.
struct MaskRequest {
  Matcher* matcher = nullptr;
  fair::PartyId party = {};
  uint64_t member = 0;  // of the party

  friend bool operator==(const MaskRequest&, const MaskRequest&) = default;
};

// A queue of masks, of which a step makes pieces. A mask that is not finished goes on in a later step, and
// takes turns with the others of its member. When a mask is made does not change it. One thread.
class MaskTurns {
 public:
  // True: all masks are there. A step takes one piece more than its `steps` at most.
  bool Prepare(std::span<const MaskRequest> requests, uint64_t steps = kMaskStepsPerStep);

 private:
  static constexpr uint64_t kPieces = 16;  // of a step, where several masks are made

  // Whose turn costs trie steps.
  fair::FairQueue<Matcher*> queue_{kMaskStepsPerStep / kPieces};
  std::vector<MaskRequest> queued_;
};

}  // namespace quire::runner::constraint
