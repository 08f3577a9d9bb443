// The cache mix of one model: what the model tells the cache about its layers, and nothing more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/types.h"

namespace quire::cache {

// Bytes of `elements` consecutive elements; of kI16 without the scales. REQUIRES: a multiple of 32 for kQ8_0.
size_t ElementBytes(ElementType type, int64_t elements);

// Layers whose KV lives equally long: full attention, one sliding window, or chunks.
struct AttentionGroup {
  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  ElementType element = ElementType::kF32;
  int32_t window = 0;    // tokens; 0 = full attention, else a token at p sees (p - window, p]
  bool chunked = false;  // a token at p sees [p - p % window, p] instead. REQUIRES: window > 0
  // Not 0: latent attention. A token is one row of head_dim numbers, its key; the last `latent` of them are
  // its value too. REQUIRES: kv_heads == 1.
  int32_t latent = 0;
  // Tokens that a row stands for (compressed keys). The row of block b, tokens [b * stride, (b + 1) *
  // stride), is written with the last of them, into its page. REQUIRES: 1, or latent rows of full attention.
  int32_t stride = 1;

  int32_t value_dim() const { return latent > 0 ? latent : head_dim; }
};

// One recurrent layer's share of a state slot. A size of 0 means the layer has no such part.
struct RecurrentLayer {
  int32_t conv_tail = 0;  // columns kept (kernel - 1)
  int32_t conv_dim = 0;
  int32_t delta_heads = 0;  // value heads; of a state space: [heads, state rows, channels of a head]
  int32_t delta_value_dim = 0;
  int32_t delta_key_dim = 0;
  // The inputs of a draft token's update of this layer besides the state, recorded so that a partly accepted
  // draft can be replayed (speculation.h): for a short convolution, conv_dim activations; for a delta rule,
  // its key, value and gates too. 0 = nothing is recorded, and sequences cannot draft live.
  int32_t record_bytes = 0;
};

struct Layout {
  int32_t page_tokens = 32;  // tokens per page; pages are anchored at absolute positions p - p % page_tokens
  std::vector<AttentionGroup> groups = {};
  std::vector<RecurrentLayer> recurrent = {};
  // The type of delta states in a snapshot store: kF32 keeps every bit; kBF16 and kQ8_0 (32 numbers to a
  // block) are smaller and lossy (stored_state.h). Sequences always have float32.
  ElementType stored_state = ElementType::kF32;
};

// kInvalid names the field that is out of range; every size below is then free of overflow.
Result<void> Validate(const Layout& layout);

// Oldest position that a token at `position` sees; `position` itself where it sees only itself.
Position OldestVisible(const AttentionGroup& group, Position position);

// Rows that a page has at most: page_tokens, or blocks of `stride` tokens that end in it.
int32_t RowsOfPage(const Layout& layout, const AttentionGroup& group);
// Blocks of `stride` tokens that end in the page of `position` before it: the row of a block in its page,
// where `position` is that of its last token.
int32_t RowOf(const Layout& layout, const AttentionGroup& group, Position position);

// Inside a page: [layers][k, v][kv_heads], then the V of one head of one layer as [page_tokens][head_dim],
// and its K transposed, so that scores of many tokens are computed at once: one plane [page_tokens] per
// number that a token has, [head_dim][page_tokens]; of kQ8_0 first the scales, [head_dim / 32][page_tokens]
// float16, then the quants, [head_dim][page_tokens] bytes. Offsets in bytes from the page's base. With kI16,
// K has the scales first, [page_tokens] float32, then planes of pairs, [head_dim / 2][page_tokens][2] int16,
// and V its scales, then pairs of tokens, [page_tokens / 2][head_dim][2] int16. With latent attention:
// [layers], then the rows of one layer, [RowsOfPage][head_dim]. ValueOffset is that of the first row's value;
// the next is a row further.
size_t PageBytes(const Layout& layout, size_t group);
size_t KeyOffset(const Layout& layout, size_t group, int32_t layer, int32_t kv_head);
size_t ValueOffset(const Layout& layout, size_t group, int32_t layer, int32_t kv_head);

// Bytes of one token's row: its value, and with latent attention its key.
size_t RowBytes(const Layout& layout, size_t group);

// Planes of a head's transposed keys, in order; not with latent attention: visit(byte offset from the head's
// first, bytes of one token's number).
template <class Visit>
void ForEachKeyPlane(const Layout& layout, size_t group, const Visit& visit) {
  const AttentionGroup& g = layout.groups[group];
  size_t offset = 0;
  const auto planes = [&](int32_t count, size_t bytes) {
    for (int32_t i = 0; i < count; ++i, offset += bytes * static_cast<size_t>(layout.page_tokens)) {
      visit(offset, bytes);
    }
  };
  if (g.element == ElementType::kQ8_0) {
    planes(g.head_dim / 32, 2);
    planes(g.head_dim, 1);
  } else if (g.element == ElementType::kI16) {
    planes(1 + g.head_dim / 2, 4);
  } else {
    planes(g.head_dim, ElementBytes(g.element, 1));
  }
}

// Where a token's value lies, in bytes from those of its head's values: `count` pieces of `bytes`, `stride`
// apart; of kI16 its scale beside them. Not with latent attention. `row` is the token's place in the page.
struct ValuePlace {
  size_t first, bytes, count, stride;
  size_t scale, scale_bytes;
};
ValuePlace PlaceOfValue(const Layout& layout, size_t group, int32_t row);

// Inside a slot, per recurrent layer: conv tail [conv_tail, conv_dim] (oldest first), then delta state
// [delta_heads, delta_value_dim, delta_key_dim] float32; each part 64-byte aligned.
size_t SlotBytes(const Layout& layout);
// The size of a slot, and of a layer's delta state in it, in a snapshot store: with stored_state in place of
// float32.
size_t StoredSlotBytes(const Layout& layout);
size_t StoredDeltaBytes(const Layout& layout, size_t recurrent_layer);
size_t ConvOffset(const Layout& layout, size_t recurrent_layer);
size_t DeltaOffset(const Layout& layout, size_t recurrent_layer);

}  // namespace quire::cache
