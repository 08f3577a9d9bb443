// State slots of some sequences, as a cache would show them to one step. For the tests of recurrent kernels.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "cache/layout.h"
#include "cache/write.h"

namespace quire::runner::kernels::test {

class FakeStates final : public cache::StepView {
 public:
  FakeStates(const cache::Layout& layout, size_t sequences) : layout_(layout), sequences_(sequences) {
    for (Sequence& sequence : sequences_) sequence.slot = NewSlot();
  }

  // `capture_after` ascending and inside the step; records are kept when `recorded`.
  void NextStep(size_t i, int32_t new_tokens, const std::vector<int32_t>& capture_after, bool recorded) {
    Sequence& sequence = sequences_[i];
    sequence.new_tokens = new_tokens;
    sequence.captures.clear();
    sequence.captured.clear();
    for (size_t c = 0; c < capture_after.size(); ++c) sequence.captured.push_back(NewSlot());
    for (size_t c = 0; c < capture_after.size(); ++c) {
      sequence.captures.push_back({capture_after[c], Bytes(sequence.captured[c])});
    }
    const auto bytes =
        static_cast<size_t>(layout_.recurrent[0].record_bytes) * static_cast<size_t>(new_tokens);
    sequence.record.assign(recorded ? bytes / sizeof(float) : 0, 0.0F);
  }

  const std::vector<float>& slot(size_t i) const { return sequences_[i].slot; }
  const std::vector<float>& captured(size_t i, size_t c) const { return sequences_[i].captured[c]; }
  const std::vector<float>& record(size_t i) const { return sequences_[i].record; }

  size_t sequences() const override { return sequences_.size(); }
  cache::Position offset(size_t) const override { return 0; }
  int32_t new_tokens(size_t i) const override { return sequences_[i].new_tokens; }
  std::span<const cache::PageView> Pages(size_t, size_t) const override { return {}; }
  std::byte* Slot(size_t i) const override { return Bytes(sequences_[i].slot); }
  std::span<const cache::StateCapture> Captures(size_t i) const override { return sequences_[i].captures; }
  std::byte* Record(size_t i, size_t) const override {
    return sequences_[i].record.empty() ? nullptr : Bytes(sequences_[i].record);
  }

 private:
  struct Sequence {
    int32_t new_tokens = 0;
    mutable std::vector<float> slot, record;
    std::vector<std::vector<float>> captured;
    std::vector<cache::StateCapture> captures;
  };

  std::vector<float> NewSlot() const { return std::vector<float>(cache::SlotBytes(layout_) / sizeof(float)); }
  static std::byte* Bytes(std::vector<float>& floats) { return reinterpret_cast<std::byte*>(floats.data()); }

  cache::Layout layout_;
  mutable std::vector<Sequence> sequences_;
};

}  // namespace quire::runner::kernels::test
