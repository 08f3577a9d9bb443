#include "runner/models/pass.h"

namespace quire::runner::models {

std::span<float> Scratch::Get(int64_t size) {
  const auto floats = static_cast<size_t>(size);
  if (memory_.size() < floats) memory_.resize(floats);
  return std::span(memory_).first(floats);
}

void Pass::Prepare(int32_t heads) const {
  work.positions.clear();
  for (size_t i = 0; i + 1 < batch.row_begin.size(); ++i) {
    const int64_t count = batch.row_begin[i + 1] - batch.row_begin[i];
    for (int64_t row = 0; row < count; ++row) work.positions.push_back(step.offset(i) + row);
  }
  work.plans.resize(layout.groups.size());
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    work.plans[g].Prepare(batch.row_begin, heads, layout.groups[g].kv_heads);
  }
}

}  // namespace quire::runner::models
