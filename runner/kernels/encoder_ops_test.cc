#include "runner/kernels/encoder_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels {
namespace {

using test::ForEachInstructionSet;
using test::Random;

struct EncoderCase {
  std::vector<int32_t> lengths;
  int32_t heads, kv_heads, dim, reach;
  bool alibi, biased = false;
};

// One query's output, in double precision.
std::vector<double> Reference(const TwoWayAttention& shape, size_t sequence, size_t at, size_t head,
                              const std::vector<float>& q, const std::vector<float>& k,
                              const std::vector<float>& v) {
  const auto dim = static_cast<size_t>(shape.head_dim), heads = static_cast<size_t>(shape.heads),
             kv_heads = static_cast<size_t>(shape.kv_heads);
  const auto first = static_cast<size_t>(shape.row_begin[sequence]);
  const size_t length = static_cast<size_t>(shape.row_begin[sequence + 1]) - first;
  std::vector<double> out(dim);
  double total = 0;
  for (size_t j = 0; j < length; ++j) {
    const size_t distance = j > at ? j - at : at - j;
    if (shape.reach >= 0 && distance > static_cast<size_t>(shape.reach)) continue;
    const size_t key = ((first + j) * kv_heads + head / (heads / kv_heads)) * dim;
    double score = 0;
    for (size_t c = 0; c < dim; ++c) score += double{q[((first + at) * heads + head) * dim + c]} * k[key + c];
    score *= shape.scale;
    if (!shape.slopes.empty()) score -= shape.slopes[head] * static_cast<double>(distance);
    if (!shape.distance_bias.empty()) {
      const auto away = static_cast<int32_t>(std::min<size_t>(distance, kBiasReach));
      const int32_t place = kBiasReach + (j > at ? away : -away);
      score += shape.distance_bias[head * (2 * kBiasReach + 1) + static_cast<size_t>(place)];
    }
    const double weight = std::exp(score);
    total += weight;
    for (size_t c = 0; c < dim; ++c) out[c] += weight * v[key + c];
  }
  for (double& value : out) value /= total;
  return out;
}

TEST(TwoWayAttention, AgreesWithTheFormulaAndSeesNothingElseOfTheBatch) {
  const EncoderCase cases[] = {{{1, 70, 33, 150}, 4, 2, 16, -1, false},
                               {{5, 64, 65}, 2, 2, 7, 3, false},
                               {{130, 2, 40}, 3, 1, 24, -1, true},
                               {{300, 257, 9}, 1, 1, 32, -1, false},
                               {{330}, 1, 1, 8, 100, false},
                               {{300, 1, 20}, 2, 1, 16, -1, false, true}};
  for (const EncoderCase& one : cases) {
    std::vector<int32_t> begin = {0};
    for (const int32_t length : one.lengths) begin.push_back(begin.back() + length);
    const auto rows = static_cast<size_t>(begin.back());
    const auto width = static_cast<size_t>(one.heads * one.dim),
               kv = static_cast<size_t>(one.kv_heads * one.dim);
    Random random(7);
    const std::vector<float> q = random.Floats(rows * width), k = random.Floats(rows * kv),
                             v = random.Floats(rows * kv), slopes = {0.5F, 0.25F, 0.125F},
                             biases = random.Floats(static_cast<size_t>(one.heads * (2 * kBiasReach + 1)));
    TwoWayAttention shape{.row_begin = begin,
                          .heads = one.heads,
                          .kv_heads = one.kv_heads,
                          .head_dim = one.dim,
                          .scale = 0.7F,
                          .reach = one.reach};
    if (one.alibi) shape.slopes = slopes;
    if (one.biased) shape.distance_bias = biases;
    ForEachInstructionSet([&] {
      ThreadPool pool(3), single(1);
      std::vector<float> out(q.size());
      AttendBothWays(pool, shape, q, k, v, out);
      for (size_t s = 0; s + 1 < begin.size(); ++s) {
        const auto first = static_cast<size_t>(begin[s]), last = static_cast<size_t>(begin[s + 1]);
        for (size_t row = first; row < last; row += 3) {
          for (size_t head = 0; head < static_cast<size_t>(one.heads); ++head) {
            const auto expected = Reference(shape, s, row - first, head, q, k, v);
            for (size_t c = 0; c < expected.size(); ++c) {
              ASSERT_NEAR(out[row * width + head * expected.size() + c], expected[c], 2e-6);
            }
          }
        }
        const int32_t alone_begin[] = {0, begin[s + 1] - begin[s]};
        TwoWayAttention alone = shape;
        alone.row_begin = alone_begin;
        std::vector<float> own((last - first) * width);
        AttendBothWays(single, alone, std::span(q).subspan(first * width, own.size()),
                       std::span(k).subspan(first * kv, (last - first) * kv),
                       std::span(v).subspan(first * kv, (last - first) * kv), own);
        EXPECT_TRUE(std::ranges::equal(own, std::span(out).subspan(first * width, own.size())));
      }
    });
  }
}

TEST(TwoWayAttention, QueriesInSeveralCallsAreBitIdentical) {
  const int32_t begin[] = {0, 5, 5 + 300, 5 + 300 + 64, 5 + 300 + 64 + 130};
  constexpr size_t kWidth = 2 * 16;
  const auto rows = static_cast<size_t>(begin[4]);
  Random random(3);
  const std::vector<float> q = random.Floats(rows * kWidth), k = random.Floats(rows * kWidth),
                           v = random.Floats(rows * kWidth);
  ThreadPool pool(3);
  for (const int32_t reach : {-1, 20}) {
    TwoWayAttention shape{.row_begin = begin, .heads = 2, .kv_heads = 2, .head_dim = 16, .reach = reach};
    ForEachInstructionSet([&] {
      std::vector<float> whole(q.size());
      shape.first_query = 0;
      AttendBothWays(pool, shape, q, k, v, whole);
      for (const int64_t some : {1, 64, 100, 200}) {
        std::vector<float> out(q.size());
        for (int64_t at = 0, end = 0; at < static_cast<int64_t>(rows); at = end) {
          end = QueryBlocksEnd(begin, at, some);
          ASSERT_GT(end, at);
          ASSERT_LE(end - at, std::max(some, kQueryBlockRows));
          shape.first_query = at;
          const auto first = static_cast<size_t>(at) * kWidth, size = static_cast<size_t>(end - at) * kWidth;
          AttendBothWays(pool, shape, std::span(q).subspan(first, size), k, v,
                         std::span(out).subspan(first, size));
        }
        EXPECT_EQ(out, whole) << some << " rows, reach " << reach;
      }
    });
  }
}

TEST(GeluErf, AgreesWithTheFormula) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    std::vector<float> x;
    for (int i = -2000; i <= 2000; ++i) x.push_back(static_cast<float>(i) / 200);
    std::vector<float> y = x;
    GeluErf(pool, y);
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = 0.5 * x[i] * (1 + std::erf(x[i] / std::sqrt(2.0)));
      ASSERT_NEAR(y[i], expected, 3e-7 * std::max(1.0, std::abs(double{x[i]}))) << x[i];
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
