// One state slot alone, as a step's only sequence: for replaying recorded inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace quire::runner::models
