// What encoders compute beside matrix products and norms: attention in both directions, and the exact GELU.
//
// Batch-invariant: a row's result depends on the rows of its own sequence alone. Keys are taken tile by tile,
// with a running maximum; a block of queries begins at a multiple of its size within the sequence, and the
// first tile at a place that depends on the block alone, so that nothing else in the batch enters.
#pragma once

#include <cstdint>
#include <span>

#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels {

// Queries of a block. Where the rows of a sequence are computed in several calls, they are cut between
// blocks.
inline constexpr int64_t kQueryBlockRows = 64;

// How far away distances are told apart.
inline constexpr int32_t kBiasReach = 128;

struct TwoWayAttention {
  std::span<const int32_t> row_begin;  // [sequences + 1]
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;
  int32_t reach = -1;                  // a row sees those at most so far away; < 0: all of its sequence
  std::span<const float> slopes = {};  // [heads]: ALiBi, a score loses slope times the distance; or empty
  // [heads, 2 * kBiasReach + 1]: a score gains the number at key - query + kBiasReach, or the one at the
  // nearer end; or empty
  std::span<const float> distance_bias = {};
  int64_t first_query = 0;  // the row that q and out begin with
};

// out [queries, heads, head_dim] = softmax(score(q, k)) v over the rows of the same sequence. q as out; k, v
// [rows, kv_heads, head_dim]; query head h reads KV head h / (heads / kv_heads). The queries are those of all
// rows or of some that follow each other: bit-identical. REQUIRES: head_dim <= kMaxHeadDim (key_value.h);
// these begin and end where blocks do.
void AttendBothWays(ThreadPool& pool, const TwoWayAttention& shape, std::span<const float> q,
                    std::span<const float> k, std::span<const float> v, std::span<float> out);

// Where queries from `begin` on, which a block begins with, may end: at most `rows` further, but behind one
// block at least.
int64_t QueryBlocksEnd(std::span<const int32_t> row_begin, int64_t begin, int64_t rows);

// x = x (1 + erf(x / sqrt(2))) / 2, to 2e-7 of |x|.
void GeluErf(ThreadPool& pool, std::span<float> x);

// x = max(x, 0).
void Relu(ThreadPool& pool, std::span<float> x);

}  // namespace quire::runner::kernels
