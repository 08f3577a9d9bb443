#include "runner/constraint/mask_turns.h"

#include <algorithm>
#include <numeric>

namespace quire::runner::constraint {

bool MaskTurns::Prepare(std::span<const MaskRequest> requests, uint64_t steps) {
  ++turn_;
  while (true) {
    parties_.clear();
    for (const MaskRequest& request : requests) {
      uint64_t none = 0;  // where all is cached
      if (request.matcher->PrepareMask(none)) continue;
      const auto same = [&](const std::string* party) { return *party == *request.party; };
      if (std::ranges::none_of(parties_, same)) parties_.push_back(request.party);
    }
    if (parties_.empty()) return true;
    if (steps < parties_.size()) return false;
    left_.assign(parties_.size(), steps / parties_.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const MaskRequest& request = requests[(turn_ + i) % requests.size()];
      const auto party =
          std::ranges::find_if(parties_, [&](const std::string* other) { return *other == *request.party; });
      if (party == parties_.end()) continue;
      request.matcher->PrepareMask(left_[static_cast<size_t>(party - parties_.begin())]);
    }
    steps = std::accumulate(left_.begin(), left_.end(), uint64_t{0});
  }
}

}  // namespace quire::runner::constraint
