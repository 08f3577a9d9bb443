// Causal attention over cache pages.
//
// Batch-invariant: a query's result depends on its own position and the K and V it sees. Keys are taken tile
// by tile in position order, tiles anchored at absolute positions, with a running maximum; the sums of
// segments of 1,024 positions are made apart and added in order. Which queries share a task, how many new
// tokens the step has, the size of pages and where their window begins do not enter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runner/kernels/key_value.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// A step's attention work, cut into tasks. Made once per step and head geometry, used by all its layers.
class AttentionPlan {
 public:
  // Query rows per task: enough to reuse a tile of K and V often, few enough to stay in the second-level
  // cache.
  static constexpr int32_t kItemRows = 192;
  static constexpr int32_t kItemNumbers = 96 * kMaxLatentKeyDim;  // of queries: rows * head_dim
  // Positions whose keys make a segment of sums. Segments begin at multiples of it.
  static constexpr cache::Position kSegment = 1024;

  // A few query rows (position, head) that share one KV head of one sequence.
  struct Item {
    int32_t sequence;
    int32_t kv_head;
    int32_t begin, end;  // indices position * (heads / kv_heads) + head in the group of heads
  };

  // The keys of some segments of an item.
  struct Piece {
    size_t item;
    cache::Position begin, end;  // multiples of kSegment
    float* sums;                 // [segments, rows of the item, SumsOfRow()], valid until the next Divide()
  };
  // Values, their largest score, their weight.
  static constexpr size_t SumsOfRow(size_t value_dim) { return value_dim + 2; }

  // Bytes of the sums of all pieces, at most, behind this many positions.
  static int64_t SumsBytesMax(const cache::AttentionGroup& group, int32_t threads, cache::Position positions);

  // Reuses the memory of earlier steps. `threads` are those that will take the tasks. REQUIRES: heads is a
  // multiple of the group's kv_heads.
  void Prepare(std::span<const int32_t> row_begin, int32_t heads, const cache::AttentionGroup& group,
               int32_t threads);

  // Cuts the items along their keys where they are too few to keep the threads busy; else, and where keys are
  // too few, there are no pieces. Reuses memory.
  std::span<const Piece> Divide(const AttentionLayer& at, int32_t threads);
  // The pieces of the last Divide(), in the order of keys.
  std::span<const Piece> PiecesOf(size_t item) const;

  int32_t heads() const { return heads_; }
  std::span<const Item> items() const { return items_; }

 private:
  int32_t heads_ = 0;
  std::vector<Item> items_;
  std::vector<Piece> pieces_;
  std::vector<float> sums_;
};

// How a dot product of query and key becomes a score: s = scale * q k, then cap * tanh(s / cap) if there is a
// cap, less slope * distance if there are slopes.
struct Scoring {
  float scale = 1;     // > 0
  float soft_cap = 0;  // 0 = none
  // [heads], or empty: a score of no key and no value that takes its share of the softmax.
  std::span<const float> sinks = {};
  std::span<const float> slopes = {};  // [heads]: ALiBi; or empty
};

// out [rows, heads, value_dim] = softmax(score(q, k)) v over the keys each row may see: its own position and
// those before it, as far as the step's pages and the group's window go, and those behind it up to
// AttentionLayer::seen_end. Query head h reads KV head h /
// (heads / kv_heads). REQUIRES: StoreKeyValue has run for this layer, or its pages hold all that is to be
// seen; head_dim <= kMaxHeadDim, with latent attention head_dim <= kMaxLatentKeyDim and value_dim <=
// kMaxHeadDim.
void Attention(ThreadPool& pool, const AttentionLayer& at, AttentionPlan& plan, Scoring scoring,
               std::span<const float> q, std::span<float> out);

}  // namespace quire::runner::kernels
