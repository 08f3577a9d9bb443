#include "runner/models/expert_transpose.h"

#include <vector>

namespace quire::runner::models {

void BindTransposedExperts(const TensorScope& scope, TensorName gate_up, TensorName down, int64_t experts,
                           int64_t hidden, int64_t width, MixtureOfExperts* moe) {
  const std::vector<kernels::Matrix> both = scope.Stacked(gate_up, experts, hidden, 2 * width);
  const std::vector<kernels::Matrix> narrow = scope.Stacked(down, experts, width, hidden);
  for (size_t e = 0; e < static_cast<size_t>(experts) && !scope.failed(); ++e) {
    moe->gate.push_back(scope.ColumnsOf(gate_up, both[e], 0, width));
    moe->up.push_back(scope.ColumnsOf(gate_up, both[e], width, 2 * width));
    moe->down.push_back(scope.ColumnsOf(down, narrow[e], 0, hidden));
  }
  FinishExperts(scope, hidden, width, moe);
}

}  // namespace quire::runner::models
