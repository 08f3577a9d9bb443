#include "runner/models/expert_transpose.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/panels.h"

namespace quire::runner::models {
namespace {

// Columns [begin, end) of floats [in, columns] as the rows of a matrix. What no panels hold stays in `made`.
kernels::Matrix TransposedColumns(const TensorScope& scope, const kernels::Matrix& from, int64_t begin,
                                  int64_t end, std::vector<std::unique_ptr<std::byte[]>>* made) {
  kernels::Matrix to{.data = from.data, .type = from.type, .out = end - begin, .in = from.out};
  if (scope.metadata_only()) return scope.InPanels(to, WeightUse::kMade);
  const size_t bytes = weights::RowBytes(from.type, 1);
  const auto out = static_cast<size_t>(to.out), in = static_cast<size_t>(to.in);
  const auto columns = static_cast<size_t>(from.in), first = static_cast<size_t>(begin);
  auto memory = std::make_unique_for_overwrite<std::byte[]>(out * in * bytes);
  for (size_t i = 0; i < in; ++i) {
    for (size_t o = 0; o < out; ++o) {
      std::memcpy(memory.get() + (o * in + i) * bytes, from.data + (i * columns + first + o) * bytes, bytes);
    }
  }
  to.data = memory.get();
  to = scope.InPanels(to, WeightUse::kMade);
  if (to.panels == nullptr) made->push_back(std::move(memory));
  return to;
}

}  // namespace

void BindTransposedExperts(const TensorScope& scope, TensorName gate_up, TensorName down, int64_t experts,
                           int64_t hidden, int64_t width, MixtureOfExperts* moe) {
  const std::vector<kernels::Matrix> both = scope.Stacked(gate_up, experts, hidden, 2 * width);
  const std::vector<kernels::Matrix> narrow = scope.Stacked(down, experts, width, hidden);
  for (const auto& [name, matrices] : {std::pair(gate_up, &both), std::pair(down, &narrow)}) {
    if (!matrices->empty() && !kernels::IsFloat(matrices->front().type)) {
      scope.Fail(name, "is quantized across the inputs of its experts; only floats are supported");
    }
  }
  for (size_t e = 0; e < static_cast<size_t>(experts) && !scope.failed(); ++e) {
    moe->gate.push_back(TransposedColumns(scope, both[e], 0, width, &moe->made));
    moe->up.push_back(TransposedColumns(scope, both[e], width, 2 * width, &moe->made));
    moe->down.push_back(TransposedColumns(scope, narrow[e], 0, hidden, &moe->made));
  }
  FinishExperts(scope, hidden, width, moe);
}

}  // namespace quire::runner::models
