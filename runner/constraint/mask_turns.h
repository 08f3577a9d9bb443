// Shares the making of masks between the answers of an engine step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

// All masks of one step together take about as many steps through tries: some 20 ms.
inline constexpr uint64_t kMaskStepsPerStep = 2'000'000;
// The least piece of a mask, beside what it repeats.
inline constexpr uint64_t kMaskPieceMin = 10'000;

// An answer whose mask is asked for, or goes on in pieces, before the step.
struct MaskRequest {
  Matcher* matcher = nullptr;
  const std::string* party = nullptr;
  const std::string* member = nullptr;  // of the party
};

// Parties that still wait get equal parts, within them their members, and within these their answers; what
// one does not need goes to the others. Where a part is too small for pieces of all, those of the party get
// some that have waited longest. One that has got none for kPatience steps gets a piece beyond the step's:
// one answer in a step, by turns of parties. A mask that is not finished goes on in the next step. When a
// mask is made does not change it. One thread.
class MaskTurns {
 public:
  static constexpr uint64_t kPatience = 3;

  // True: all masks are there.
  bool Prepare(std::span<const MaskRequest> requests, uint64_t steps = kMaskStepsPerStep);

 private:
  struct Waiting {
    const MaskRequest* request = nullptr;
    uint64_t waited = 0;  // steps of the engine in which it got nothing, so far
    uint64_t share = 0;
    bool served = false;
  };
  static uint64_t PieceMin(const Waiting& one) {
    return one.request->matcher->repeated_steps() + kMaskPieceMin;
  }
  static bool DivideAmong(std::span<Waiting> all, uint64_t steps);
  void FindWaiting(std::span<const MaskRequest> requests);
  std::span<Waiting> PartyAt(size_t begin);
  bool DivideRound(uint64_t steps);     // false: there is no piece for anybody
  uint64_t MakePieces(uint64_t steps);  // what they leave
  void HelpLongestWaiting();
  void RemoveFinished();

  std::vector<Waiting> waiting_;  // of a party together, those who have waited longest first
  std::vector<std::pair<const Matcher*, uint64_t>> waits_;  // of the step before: who waited, and `waited`
};

}  // namespace quire::runner::constraint
