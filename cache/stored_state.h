// The form in which a snapshot store keeps recurrent states, where Layout::stored_state is not float32.
//
// A stored slot has per recurrent layer the convolution tail of the slot, unchanged, then its delta state as
// - kBF16: bfloat16, rounded to nearest even: an error of at most 2^-8 of each number;
// - kQ8_0: blocks of 32 numbers, a float16 scale and 32 int8: an error of at most half the scale, which is
//   the block's largest magnitude / 127, rounded up to a float16 (at most 65504). A block with a number that
//   is not finite comes back as NaN.
// Each part is 64-byte aligned; bytes between parts are not written. Sizes are in layout.h. Any thread.
#pragma once

#include <cstddef>

#include "cache/layout.h"

namespace quire::cache {

// Converts a slot of SlotBytes() into one of StoredSlotBytes(), and back. REQUIRES: stored_state is kBF16 or
// kQ8_0.
void StoreState(const Layout& layout, const std::byte* slot, std::byte* stored);
void LoadState(const Layout& layout, const std::byte* stored, std::byte* slot);

}  // namespace quire::cache
