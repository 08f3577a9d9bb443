// One state slot alone, as a step's only sequence: for replaying recorded inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <vector>

#include "cache/layout.h"
#include "cache/write.h"

namespace quire::runner::models {

class SlotView final : public cache::StepView {
 public:
  SlotView(std::byte* slot, int32_t tokens) : slot_(slot), tokens_(tokens) {}

  size_t sequences() const override { return 1; }
  cache::Position offset(size_t) const override { return 0; }
  int32_t new_tokens(size_t) const override { return tokens_; }
  std::span<const cache::PageView> Pages(size_t, size_t) const override { return {}; }
  std::byte* Slot(size_t) const override { return slot_; }

 private:
  std::byte* slot_;
  int32_t tokens_;
};

// Recorded rows of a layer apart: for each width a part [tokens, width], in the order of the rows' numbers,
// of which some may be left at the end. REQUIRES: inputs has `tokens` whole rows.
inline std::vector<std::vector<float>> SplitRecords(const cache::RecurrentLayer& layer,
                                                    std::span<const std::byte> inputs, size_t tokens,
                                                    std::initializer_list<size_t> widths) {
  std::vector<std::vector<float>> parts;
  parts.reserve(widths.size());
  const auto stride = static_cast<size_t>(layer.record_bytes);
  size_t offset = 0;
  for (const size_t width : widths) {
    std::vector<float>& part = parts.emplace_back(tokens * width);
    for (size_t t = 0; t < tokens; ++t) {
      std::memcpy(part.data() + t * width, inputs.data() + t * stride + offset, width * sizeof(float));
    }
    offset += width * sizeof(float);
  }
  return parts;
}

}  // namespace quire::runner::models
