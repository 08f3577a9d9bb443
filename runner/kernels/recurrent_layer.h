// One recurrent layer of one step, as its kernels see it: where each sequence's state lies, where states on
// the way are to be captured, and where a draft's inputs are recorded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/layout.h"
#include "cache/write.h"

namespace quire::runner::kernels {

struct RecurrentLayer {
  const cache::Layout* layout = nullptr;
  size_t layer = 0;  // of layout->recurrent
  const cache::StepView* step = nullptr;
  std::span<const int32_t> row_begin;  // [sequences + 1]

  size_t sequences() const { return row_begin.size() - 1; }
  size_t rows(size_t sequence) const {
    return static_cast<size_t>(row_begin[sequence + 1] - row_begin[sequence]);
  }

  // [conv_tail, conv_dim] and [delta_heads, delta_value_dim, delta_key_dim] in a slot.
  float* Tail(std::byte* slot) const {
    return reinterpret_cast<float*>(slot + cache::ConvOffset(*layout, layer));
  }
  float* Delta(std::byte* slot) const {
    return reinterpret_cast<float*>(slot + cache::DeltaOffset(*layout, layer));
  }
  // A row of floats per new token, record_stride() apart; null when nothing need be recorded.
  float* Record(size_t sequence) const { return reinterpret_cast<float*>(step->Record(sequence, layer)); }
  size_t record_stride() const {
    return static_cast<size_t>(layout->recurrent[layer].record_bytes) / sizeof(float);
  }
};

}  // namespace quire::runner::kernels
