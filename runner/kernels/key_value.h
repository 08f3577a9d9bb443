// K and V as cache pages hold them, and the writes that fill the pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/layout.h"
#include "cache/write.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

constexpr int32_t kMaxHeadDim = 512;
constexpr int32_t kMaxLatentKeyDim = 640;  // of a group with latent attention; its values: kMaxHeadDim
constexpr int32_t kQ8Block = 32;           // elements that share a scale in kQ8_0

// One attention layer of one step. K, V and Q rows are laid end to end as the batch's rows.
struct AttentionLayer {
  const cache::Layout* layout = nullptr;
  size_t group = 0;
  int32_t layer = 0;  // within the group
  const cache::StepView* step = nullptr;
  std::span<const int32_t> row_begin;  // [sequences + 1]
  // [rows]: the position behind the last one that a row sees. Empty: each row sees up to itself.
  std::span<const int32_t> seen_end = {};

  // For row `row` of a sequence's rows in this step.
  cache::Position SeenEnd(size_t sequence, int32_t row) const {
    if (seen_end.empty()) return step->offset(sequence) + row + 1;
    const int32_t in_batch = row_begin[sequence] + row;
    return seen_end[static_cast<size_t>(in_batch)];
  }
};

// Elements from and to float32. Rounded to nearest even; beyond what float16 has, its largest number; kQ8_0
// in blocks whose scale is the largest magnitude / 127; kI16 as one vector, whose scale is the largest
// magnitude / 4095. REQUIRES: whole blocks.
void ConvertFromFloat32(cache::ElementType type, std::span<const float> from, std::byte* to);
void ConvertToFloat32(cache::ElementType type, const std::byte* from, std::span<float> to);

// Keys of `tokens` tokens of one head, from and to [tokens, head_dim]; `head` is where the head's keys begin
// in a page, `row` the first token's place in it. With latent attention a key includes its value.
void ReadKeys(const cache::Layout& layout, size_t group, const std::byte* head, int32_t row, int32_t tokens,
              std::span<float> to);
void WriteKeys(const cache::Layout& layout, size_t group, std::span<const float> from, std::byte* head,
               int32_t row, int32_t tokens);

// The value of one token of one head, from and to [head_dim]; with latent attention read only, [latent].
// `head` is where the head's values begin in a page.
void ReadValue(const cache::Layout& layout, size_t group, const std::byte* head, int32_t row,
               std::span<float> to);
void WriteValue(const cache::Layout& layout, size_t group, std::span<const float> from, std::byte* head,
                int32_t row);

// Writes K and V [rows, kv_heads, head_dim] of the step's new tokens into their pages, as the group's element
// type. With latent attention v is empty.
void StoreKeyValue(ThreadPool& pool, const AttentionLayer& at, std::span<const float> k,
                   std::span<const float> v);

}  // namespace quire::runner::kernels
