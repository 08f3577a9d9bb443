// One engine step's appends, as attention and recurrent kernels see them.
//
// HybridCache::Begin() plans and reserves: afterwards every page and slot the step writes is private and
// mapped, and nothing below can fail. Kernels then write K and V of the new tokens layer by layer, read them
// back by page, and update the recurrent state in place. Commit() moves every sequence's offset by its token
// count. Engine thread plans and commits; inside a step compute threads may use the const and pointer
// accessors at once for disjoint (sequence, head) work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/types.h"

namespace quire::cache {

// The part of one page that a sequence sees.
struct PageView {
  // Add KeyOffset/ValueOffset(layout, group, layer, kv_head); the row of a position is position %
  // page_tokens.
  std::byte* base = nullptr;
  Position first = 0;  // first visible position in this page
  int32_t tokens = 0;  // visible tokens, including those of this step
};

// A place for a sequence's recurrent state as it is after `after` of the step's tokens (0 < after <
// new_tokens).
struct StateCapture {
  int32_t after = 0;
  std::byte* slot =
      nullptr;  // laid out as Slot(); every recurrent layer writes its conv tail and delta state
};

// The kernels' view of a step. Index `i` is the sequence's place in the span given to Begin().
class StepView {
 public:
  virtual ~StepView() = default;

  virtual size_t sequences() const = 0;
  virtual Position offset(size_t i) const = 0;  // position of the first new token
  virtual int32_t new_tokens(size_t i) const = 0;
  // Pages of group g in position order, from the oldest that any new token may see to the last new token.
  // For a window group the kernel still masks by position.
  virtual std::span<const PageView> Pages(size_t i, size_t group) const = 0;
  // State slot of sequence i, private to it (zero before the first token); add ConvOffset/DeltaOffset.
  // Null when the layout has no recurrent layers.
  virtual std::byte* Slot(size_t i) const = 0;
  // States to copy out on the way, `after` ascending. Recurrent kernels must fill each of them.
  virtual std::span<const StateCapture> Captures(size_t i) const {
    (void)i;
    return {};
  }
  // Where a recurrent layer records what each new token fed into its state, [new_tokens][record_bytes], so
  // that a partly accepted draft can be replayed. Null when nothing need be recorded.
  virtual std::byte* Record(size_t i, size_t recurrent_layer) const {
    (void)i, (void)recurrent_layer;
    return nullptr;
  }
};

}  // namespace quire::cache
