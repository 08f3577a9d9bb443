// RWKV-7's token shift and state update: against their formulas, bit-identical however a sequence is chunked,
// and with every instruction set; its gates and output against their formulas.
#include "runner/kernels/rwkv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runner/kernels/testing/fake_states.h"
#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels {
namespace {

using test::FakeStates;
using test::ForEachInstructionSet;
using test::Random;
using Floats = std::vector<float>;

constexpr int32_t kRwkvLengths[] = {1, 9, 40};
constexpr size_t kRwkvSequences = std::size(kRwkvLengths);
constexpr int32_t kRwkvCaptureAt = 17;  // of the last sequence
constexpr size_t kParts = 7;            // x, r, w, k, v, kk, a

// What a layer gives for all sequences.
struct RwkvResult {
  std::vector<Floats> delta, y, states, record;
  Floats captured;

  bool operator==(const RwkvResult&) const = default;
};

struct Layer {
  explicit Layer(RwkvShape of) : shape(of) {
    Random random(11);
    const auto width = static_cast<size_t>(shape.width());
    for (const int32_t length : kRwkvLengths) {
      for (auto& part : inputs) part.push_back(random.Floats(static_cast<size_t>(length) * width));
    }
    for (Floats& rows : inputs[2]) {
      for (float& decay : rows) decay = 0.77F + 0.2F * decay;
    }
    layout.recurrent.push_back({.conv_tail = 1,
                                .conv_dim = static_cast<int32_t>(shape.width()),
                                .delta_heads = static_cast<int32_t>(shape.heads),
                                .delta_value_dim = static_cast<int32_t>(shape.head_dim),
                                .delta_key_dim = static_cast<int32_t>(shape.head_dim),
                                .record_bytes = static_cast<int32_t>(6 * shape.width() * 4)});
  }

  RwkvResult Run(ThreadPool& pool, int32_t chunk) const {
    FakeStates states(layout, kRwkvSequences);
    RwkvResult result{.delta = std::vector<Floats>(kRwkvSequences),
                      .y = std::vector<Floats>(kRwkvSequences),
                      .states = {},
                      .record = std::vector<Floats>(kRwkvSequences),
                      .captured = {}};
    for (int32_t from = 0; from < kRwkvLengths[kRwkvSequences - 1]; from += chunk) {
      RunStep(pool, states, from, chunk, &result);
    }
    for (size_t s = 0; s < kRwkvSequences; ++s) result.states.push_back(states.slot(s));
    return result;
  }

  void RunStep(ThreadPool& pool, FakeStates& states, int32_t from, int32_t chunk, RwkvResult* result) const {
    const auto width = static_cast<ptrdiff_t>(shape.width());
    std::vector<int32_t> row_begin = {0};
    Floats parts[kParts];
    for (size_t s = 0; s < kRwkvSequences; ++s) {
      const int32_t begin = std::min(from, kRwkvLengths[s]), end = std::min(from + chunk, kRwkvLengths[s]);
      const int32_t after = kRwkvCaptureAt - from;
      const bool inside = s == kRwkvSequences - 1 && after > 0 && after < end - begin;
      states.NextStep(s, end - begin, inside ? std::vector{after} : std::vector<int32_t>(), true);
      row_begin.push_back(row_begin.back() + end - begin);
      for (size_t part = 0; part < kParts; ++part) {
        parts[part].insert(parts[part].end(), inputs[part][s].begin() + begin * width,
                           inputs[part][s].begin() + end * width);
      }
    }
    const RecurrentLayer at{.layout = &layout, .layer = 0, .step = &states, .row_begin = row_begin};
    Floats delta(parts[0].size()), y(delta.size());
    TokenShift(pool, {.at = at, .first = 0, .channels = shape.width(), .x = parts[0], .delta = delta});
    RwkvUpdate(pool, {.at = at,
                      .shape = shape,
                      .record_first = shape.width(),
                      .r = parts[1],
                      .w = parts[2],
                      .k = parts[3],
                      .v = parts[4],
                      .removed = parts[5],
                      .a = parts[6],
                      .y = y});
    for (size_t s = 0; s < kRwkvSequences; ++s) {
      const auto add = [&](const Floats& rows, Floats* all) {
        all->insert(all->end(), rows.begin() + row_begin[s] * width, rows.begin() + row_begin[s + 1] * width);
      };
      add(delta, &result->delta[s]);
      add(y, &result->y[s]);
      result->record[s].insert(result->record[s].end(), states.record(s).begin(), states.record(s).end());
    }
    constexpr size_t kLast = kRwkvSequences - 1;
    const int32_t end = std::min(from + chunk, kRwkvLengths[kLast]);
    if (end == kRwkvCaptureAt) result->captured = states.slot(kLast);
    if (from < kRwkvCaptureAt && end > kRwkvCaptureAt) result->captured = states.captured(kLast, 0);
  }

  // Head h of sequence s, in double: y [tokens, head_dim].
  std::vector<double> Expected(size_t s, size_t h) const {
    const auto dim = static_cast<size_t>(shape.head_dim), width = static_cast<size_t>(shape.width());
    std::vector<double> state(dim * dim), all;
    for (size_t t = 0; t < static_cast<size_t>(kRwkvLengths[s]); ++t) {
      const auto of = [&](size_t part, size_t i) {
        return static_cast<double>(inputs[part][s][t * width + h * dim + i]);
      };
      for (size_t i = 0; i < dim; ++i) {
        double removed = 0, y = 0;
        for (size_t j = 0; j < dim; ++j) removed += state[i * dim + j] * of(5, j);
        for (size_t j = 0; j < dim; ++j) {
          double& cell = state[i * dim + j];
          cell = cell * of(2, j) - removed * of(5, j) * of(6, j) + of(4, i) * of(3, j);
          y += cell * of(1, j);
        }
        all.push_back(y);
      }
    }
    return all;
  }

  RwkvShape shape;
  std::vector<Floats> inputs[kParts];  // [part][sequence][tokens * width]
  cache::Layout layout;
};

constexpr RwkvShape kShapes[] = {{.heads = 2, .head_dim = 64}, {.heads = 3, .head_dim = 21}};

TEST(Rwkv, UpdatesAreTheirFormula) {
  ThreadPool pool(2);
  for (const RwkvShape& shape : kShapes) {
    const Layer layer(shape);
    const RwkvResult result = layer.Run(pool, 64);
    const auto dim = static_cast<size_t>(shape.head_dim), width = static_cast<size_t>(shape.width());
    for (size_t s = 0; s < kRwkvSequences; ++s) {
      for (size_t h = 0; h < static_cast<size_t>(shape.heads); ++h) {
        const std::vector<double> expected = layer.Expected(s, h);
        double largest = 1;
        for (const double value : expected) largest = std::max(largest, std::abs(value));
        for (size_t i = 0; i < expected.size(); ++i) {
          const float y = result.y[s][i / dim * width + h * dim + i % dim];
          ASSERT_NEAR(y, expected[i], 1e-5 * largest) << s << " " << h << " " << i;
        }
      }
      for (size_t i = 0; i < result.delta[s].size(); ++i) {
        const float before = i < width ? 0 : layer.inputs[0][s][i - width];
        ASSERT_EQ(result.delta[s][i], before - layer.inputs[0][s][i]);
      }
    }
  }
}

TEST(Rwkv, UpdatesAreBitIdenticalHoweverASequenceIsChunkedAndOnEveryTarget) {
  ThreadPool pool(2), alone(1);
  for (const RwkvShape& shape : kShapes) {
    const Layer layer(shape);
    const RwkvResult whole = layer.Run(pool, 64);
    ASSERT_FALSE(whole.captured.empty());
    ForEachInstructionSet([&] {
      for (const int32_t chunk : {1, 7, 64}) {
        EXPECT_EQ(layer.Run(chunk == 7 ? alone : pool, chunk), whole) << "chunks of " << chunk;
      }
    });
  }
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Rwkv, GatesAndOutputAreTheirFormulas) {
  constexpr RwkvShape kShape = {.heads = 3, .head_dim = 21};
  constexpr size_t kDim = 21, kWidth = 63, kRows = 5;
  ThreadPool pool(2);
  Random random(3);
  const auto row = [&] { return random.Floats(kWidth); };
  const auto rows = [&] { return random.Floats(kRows * kWidth); };
  const Floats bias = row(), removal = row(), rate = row(), weight = row(), shift = row(), bonus = row();
  const Floats a = rows(), k = rows(), r = rows(), v = rows(), first = rows(), gate = rows(), y = rows();
  ForEachInstructionSet([&] {
    Floats decay = a, sigmoid = a, tanh = a, mixed = v, lerped(v.size()), removed(k.size()), keys = k,
           out = y;
    RwkvDecay(pool, bias, decay);
    SigmoidBias(pool, bias, sigmoid);
    Tanh(pool, tanh);
    MixTowards(pool, first, gate, mixed);
    Lerp(pool, v, first, weight, lerped);
    RwkvKeys(pool, {.shape = kShape,
                    .removal = removal,
                    .rate = rate,
                    .least = 1e-12F,
                    .inside = 0.25F,
                    .a = a,
                    .k = keys,
                    .removed = removed});
    RwkvOutput(pool, {.shape = kShape,
                      .eps = 0.1F,
                      .weight = weight,
                      .bias = shift,
                      .bonus = bonus,
                      .r = r,
                      .k = k,
                      .v = v,
                      .gate = gate,
                      .y = out});
    for (size_t i = 0; i < a.size(); ++i) {
      const size_t c = i % kWidth, head = i / kDim * kDim;
      double squares = 0.25, mean = 0, variance = 0, product = 0;
      for (size_t j = head; j < head + kDim; ++j) {
        squares += std::pow(static_cast<double>(k[j]) * removal[j % kWidth], 2);
        mean += static_cast<double>(y[j]) / kDim;
        product += static_cast<double>(r[j]) * k[j] * bonus[j % kWidth];
      }
      for (size_t j = head; j < head + kDim; ++j) variance += std::pow(y[j] - mean, 2) / kDim;
      const double normed = (y[i] - mean) / std::sqrt(variance + 0.1F) * weight[c] + shift[c];
      constexpr double kNear = 4e-6;
      EXPECT_NEAR(decay[i], std::exp(-std::exp(-0.5) * Sigmoid(a[i] + bias[c])), kNear);
      EXPECT_NEAR(sigmoid[i], Sigmoid(a[i] + bias[c]), kNear);
      EXPECT_NEAR(tanh[i], std::tanh(a[i]), kNear);
      EXPECT_NEAR(mixed[i], v[i] + gate[i] * (first[i] - v[i]), kNear);
      EXPECT_NEAR(lerped[i], v[i] + weight[c] * first[i], kNear);
      EXPECT_NEAR(removed[i], k[i] * removal[c] / std::sqrt(squares), kNear);
      EXPECT_NEAR(keys[i], k[i] * (1 + (a[i] - 1.0) * rate[c]), kNear);
      EXPECT_NEAR(out[i], (normed + product * v[i]) * gate[i], 2e-5);
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
