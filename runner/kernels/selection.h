// Attention to some of the keys only: those that an indexer chose for each row ("lightning indexers" of
// DeepSeek V3.2 and V4, block indexers of Qwen and MiniMax).
//
// An index key is a row of a latent group of the cache, float32, one for each token or each block of
// AttentionGroup::stride tokens. Batch-invariant: what a row chooses and gets depends on its own position,
// query and sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/attention.h"
#include "runner/kernels/key_value.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// The keys that each row of a step attends to. Lists ascend; they hold positions, or numbers of blocks. A row
// has one list for all KV heads, or one for each.
struct Selection {
  int32_t lists = 1;
  bool all = false;  // every row sees all that is before it: Attention() is bit-identical, and sooner
  std::vector<std::vector<int32_t>> keys;  // [rows * lists], at least; memory is reused
  std::vector<float> scores;               // of SelectKeys, for the rows that it works on

  std::span<const int32_t> Of(size_t row, int32_t kv_head) const {
    const auto count = static_cast<size_t>(lists);
    return keys[row * count + static_cast<size_t>(kv_head) % count];
  }
  int64_t bytes() const;
};

// How index keys compete. The score of key k for a list of heads: scale * sum_h w_h relu(q_h k), in the order
// of heads.
struct IndexRule {
  int32_t heads = 1;  // of queries; each list has an equal share of them, in order
  int32_t lists = 1;
  float scale = 1;
  bool relu = true;          // of the product of query and key; without, it is taken as it is
  int32_t best = 0;          // keys, or blocks, that are taken; of equal ones the first. REQUIRES: > 0
  int32_t block = 1;         // above 1: the keys of this many tokens compete as one, with their largest score
  int32_t local_blocks = 0;  // blocks up to the row's own that are taken before all others
  // The index keys are those of blocks: a list has the tokens of the blocks taken, and all tokens behind the
  // last whole block. Else it has the numbers of index keys.
  bool expand = false;
};

// Fills `to` for each of the step's rows from index keys that have been stored. q [rows, heads, head_dim of
// the group]; weights [rows, heads], or empty: all 1. A row that sees no more than it may take, takes all.
void SelectKeys(ThreadPool& pool, const AttentionLayer& at, const IndexRule& rule, std::span<const float> q,
                std::span<const float> weights, Selection* to);

// Keys and values of one group that rows attend to.
struct SelectedKeys {
  AttentionLayer at;
  const Selection* chosen = nullptr;  // null: all that a row sees, of a group with a stride all whole blocks
};

// out [rows, heads, value_dim] = softmax(score(q, k)) v over the keys of all sources together, as
// Attention() computes it for those keys alone; where all keys are chosen it is bit-identical. REQUIRES:
// sources have the same step, rows, heads and element type; several are latent.
void SelectedAttention(ThreadPool& pool, std::span<const SelectedKeys> sources, int32_t heads,
                       const Scoring& scoring, std::span<const float> q, std::span<float> out);

// Rows of a latent group of sequence `sequence`, from and to float32. The row of a block is written at the
// position of its last token. REQUIRES: the sequence's pages hold the positions.
void WriteRow(const AttentionLayer& at, size_t sequence, cache::Position position,
              std::span<const float> row);
void ReadRow(const AttentionLayer& at, size_t sequence, cache::Position position, std::span<float> row);

// Where that row lies.
std::byte* PlaceOfRow(const AttentionLayer& at, size_t sequence, cache::Position position);

}  // namespace quire::runner::kernels
