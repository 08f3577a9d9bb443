// Shares the making of masks between the answers of an engine step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// All masks of one step together take about as many steps through tries: some 20 ms.
inline constexpr uint64_t kMaskStepsPerStep = 2'000'000;

// An answer whose mask is asked for, or goes on in pieces, before the step.
struct MaskRequest {
  Matcher* matcher = nullptr;
  const std::string* party = nullptr;
};

// Parties that still wait get equal parts, and what one does not need goes to the others. Within a party the first to get
// steps changes from step to step, so that no answer starves. A mask that is not finished goes on in the next step. When a
// mask is made does not change it. One thread.
class MaskTurns {
 public:
  // True: all masks are there.
  bool Prepare(std::span<const MaskRequest> requests, uint64_t steps = kMaskStepsPerStep);

 private:
  size_t turn_ = 0;
  std::vector<const std::string*> parties_;  // scratch: that wait
  std::vector<uint64_t> left_;               // of each
};

}  // namespace quire::runner::constraint
