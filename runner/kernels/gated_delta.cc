#include "runner/kernels/gated_delta.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runner/kernels/portable_math.h"
#include "runner/kernels/product_cut.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/gated_delta.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_GATED_DELTA_ONCE_
#define QUIRE_RUNNER_KERNELS_GATED_DELTA_ONCE_
namespace quire::runner::kernels {
namespace {

// Some value rows of a head of one sequence's new tokens; each pointer is at the first of them.
struct DeltaHead {
  const float *q, *k;  // [tokens, key_dim], `channels` apart
  const float* v;      // [tokens, rows], `channels` apart
  const float* decay;  // one, or key_dim, per token, `decays` apart
  const float* beta;   // one per token, `heads` apart
  float* y;            // [tokens, rows], `values` apart
  float* state;        // [rows, key_dim]
  size_t key_dim, rows, channels, decays, heads, values;
  bool by_channel;
};

}  // namespace
}  // namespace quire::runner::kernels
#endif  // QUIRE_RUNNER_KERNELS_GATED_DELTA_ONCE_

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Scales x to length `length`: x * length / sqrt(sum x^2 + 1e-6).
void NormalizeHead(float* x, size_t size, float length) {
  const F32 d;
  const float factor = 1.0F / std::sqrt(SumOfSquares(x, size) + 1e-6F);
  const VF32 scale = hn::Set(d, factor), to = hn::Set(d, length);
  ForEachElement(
      size, x, [=](VF32 v) HWY_ATTR { return hn::Mul(hn::Mul(v, scale), to); }, x);
}

// Calls f(i, load, store, v) for the vectors of `dim` elements from i on; v is the sum that they belong to.
template <class F>
HWY_INLINE void ForEachSumVector(size_t dim, const F& f) {
  const auto load = [](const float* from) HWY_ATTR { return hn::LoadU(F32(), from); };
  const auto store = [](const VF32& s, float* to) HWY_ATTR { hn::StoreU(s, F32(), to); };
  size_t i = 0;
  for (; i + kSumLanes <= dim; i += kSumLanes) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kSumVectors; ++v) f(i + v * kLanes, load, store, v);
  }
#pragma GCC unroll 16
  for (size_t v = 0; v < kSumVectors; ++v) {
    const size_t at = i + v * kLanes;
    if (at + kLanes <= dim) {
      f(at, load, store, v);
    } else if (at < dim) {
      const size_t rest = dim - at;
      f(
          at, [rest](const float* from) HWY_ATTR { return LoadFirst(from, rest); },
          [rest](const VF32& s, float* to) HWY_ATTR { StoreFirst(s, to, rest); }, v);
    }
  }
}

// Rows [row, row + kRows) of a head's state over tokens [begin, end). The decayed state is computed twice
// rather than stored between the two sums: a token writes the state once.
template <size_t kRows, bool kByChannel>
HWY_INLINE void DeltaRows(const DeltaHead& head, size_t row, size_t begin, size_t end) {
  const F32 d;
  const size_t dim = head.key_dim;
  float* const state = head.state + row * dim;
  // The rows that come next: one token alone waits for memory.
  for (size_t i = 0; i < kRows * dim; i += 16) __builtin_prefetch(state + kRows * dim + i, 1, 3);
  for (size_t t = begin; t < end; ++t) {
    const float *k = head.k + t * head.channels, *q = head.q + t * head.channels;
    const float* const decays = head.decay + t * head.decays;
    const VF32 one_decay = hn::Set(d, *decays);
    LaneSums before[4], after[4];
    alignas(16) float told[4], out[4];
    ForEachSumVector(
        dim, [&](size_t i, const auto& load, const auto&, size_t v) HWY_ATTR __attribute__((always_inline)) {
          const VF32 key = load(k + i), decay = kByChannel ? load(decays + i) : one_decay;
#pragma GCC unroll 4
          for (size_t r = 0; r < kRows; ++r) {
            before[r].part[v] = hn::MulAdd(hn::Mul(load(state + r * dim + i), decay), key, before[r].part[v]);
          }
        });
    StoreTotals4(before[0], before[1], before[2], before[3], told);

    VF32 change[kRows];
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      const float value = head.v[t * head.channels + row + r];
      change[r] = hn::Set(d, (value - told[r]) * head.beta[t * head.heads]);
    }
    ForEachSumVector(
        dim, [&](size_t i, const auto& load, const auto& store, size_t v) HWY_ATTR
        __attribute__((always_inline)) {
          const VF32 key = load(k + i), query = load(q + i),
                     decay = kByChannel ? load(decays + i) : one_decay;
#pragma GCC unroll 4
          for (size_t r = 0; r < kRows; ++r) {
            const VF32 s = hn::MulAdd(change[r], key, hn::Mul(load(state + r * dim + i), decay));
            store(s, state + r * dim + i);
            after[r].part[v] = hn::MulAdd(s, query, after[r].part[v]);
          }
        });
    StoreTotals4(after[0], after[1], after[2], after[3], out);
    std::copy_n(out, kRows, head.y + t * head.values + row);
  }
}

// The rows of the state over `tokens` tokens; captures get them on their way.
template <bool kByChannel>
HWY_INLINE void DeltaTokensOf(const DeltaHead& head, size_t tokens,
                              std::span<const cache::StateCapture> captures, const RecurrentLayer& at,
                              size_t state_offset) {
  constexpr size_t kRows = 4;
  for (size_t row = 0; row < head.rows;) {
    const size_t count = row + kRows <= head.rows ? kRows : 1;
    size_t begin = 0;
    const auto run_to = [&](size_t end) HWY_ATTR {
      if (count == kRows) {
        DeltaRows<kRows, kByChannel>(head, row, begin, end);
      } else {
        DeltaRows<1, kByChannel>(head, row, begin, end);
      }
      begin = end;
    };
    for (const cache::StateCapture& capture : captures) {
      run_to(static_cast<size_t>(capture.after));
      std::copy_n(head.state + row * head.key_dim, count * head.key_dim,
                  at.Delta(capture.slot) + state_offset + row * head.key_dim);
    }
    run_to(tokens);
    row += count;
  }
}

void DeltaTokens(const DeltaHead& head, size_t tokens, std::span<const cache::StateCapture> captures,
                 const RecurrentLayer& at, size_t state_offset) {
  if (head.by_channel) return DeltaTokensOf<true>(head, tokens, captures, at, state_offset);
  DeltaTokensOf<false>(head, tokens, captures, at, state_offset);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(NormalizeHead);
HWY_EXPORT(DeltaTokens);

void NormalizeRow(const GatedDeltaShape& shape, float* row) {
  const auto dim = static_cast<size_t>(shape.key_dim), heads = static_cast<size_t>(shape.key_heads);
  const auto query_length = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.key_dim)));
  for (size_t head = 0; head < heads; ++head) {
    HWY_DYNAMIC_DISPATCH(NormalizeHead)(row + head * dim, dim, query_length);
    HWY_DYNAMIC_DISPATCH(NormalizeHead)(row + (heads + head) * dim, dim, 1.0F);
  }
}

// The rows of a value head's state depend on their own values alone.
void RunRowsOfHead(const GatedDeltaArgs& args, size_t sequence, size_t h, CutRange rows) {
  const GatedDeltaShape& shape = args.shape;
  const auto key_heads = static_cast<size_t>(shape.key_heads), heads = static_cast<size_t>(shape.value_heads);
  const auto key_dim = static_cast<size_t>(shape.key_dim), value_dim = static_cast<size_t>(shape.value_dim);
  const auto channels = static_cast<size_t>(shape.channels()), keys = static_cast<size_t>(shape.keys());
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  const auto decays = static_cast<size_t>(shape.decays());
  const size_t key_head = shape.tiled ? h % key_heads : h / (heads / key_heads);
  const float* const qkv = args.qkv.data() + first * channels;
  const size_t value = h * value_dim + rows.begin, state_offset = value * key_dim;
  const DeltaHead head{.q = qkv + key_head * key_dim,
                       .k = qkv + keys + key_head * key_dim,
                       .v = qkv + 2 * keys + value,
                       .decay = args.decay.data() + first * decays + h * (shape.by_channel ? key_dim : 1),
                       .beta = args.beta.data() + first * heads + h,
                       .y = args.y.data() + first * heads * value_dim + value,
                       .state = args.at.Delta(args.at.step->Slot(sequence)) + state_offset,
                       .key_dim = key_dim,
                       .rows = rows.end - rows.begin,
                       .channels = channels,
                       .decays = decays,
                       .heads = heads,
                       .values = heads * value_dim,
                       .by_channel = shape.by_channel};
  HWY_DYNAMIC_DISPATCH(DeltaTokens)
  (head, args.at.rows(sequence), args.at.step->Captures(sequence), args.at, state_offset);
}

void RecordGates(const GatedDeltaArgs& args, size_t sequence) {
  float* record = args.at.Record(sequence);
  if (record == nullptr) return;
  const auto heads = static_cast<size_t>(args.shape.value_heads);
  const auto decays = static_cast<size_t>(args.shape.decays());
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  for (size_t t = 0; t < args.at.rows(sequence); ++t, record += args.at.record_stride()) {
    float* const gates = record + args.shape.channels();
    std::copy_n(args.decay.data() + (first + t) * decays, decays, gates);
    std::copy_n(args.beta.data() + (first + t) * heads, heads, gates + decays);
  }
}

}  // namespace

void DeltaGates(std::span<const float> rate, std::span<const float> bias, std::span<float> a,
                std::span<float> b) {
  assert(rate.size() == bias.size() && a.size() == b.size() && a.size() % rate.size() == 0);
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t head = i % rate.size();
    const float x = a[i] + bias[head];
    a[i] = Exp(rate[head] * Softplus(x));
    b[i] = Sigmoid(b[i]);
  }
}

namespace {

// a [rows, heads, width] = decay(rate, a + bias), with the head's rate.
template <class Decay>
void DecayChannels(ThreadPool& pool, std::span<const float> rate, std::span<const float> bias,
                   std::span<float> a, const Decay& decay) {
  const size_t all = bias.size(), width = all / rate.size();
  assert(all % rate.size() == 0 && a.size() % all == 0);
  constexpr size_t kPerTask = 1024;
  pool.ParallelFor((a.size() + kPerTask - 1) / kPerTask, [&](size_t task) {
    const size_t end = std::min(a.size(), (task + 1) * kPerTask);
    for (size_t i = task * kPerTask; i < end; ++i) {
      const size_t channel = i % all;
      a[i] = decay(rate[channel / width], a[i] + bias[channel]);
    }
  });
}

}  // namespace

void ChannelDecay(ThreadPool& pool, std::span<const float> rate, std::span<const float> bias,
                  std::span<float> a) {
  DecayChannels(pool, rate, bias, a, [](float factor, float x) { return Exp(factor * Softplus(x)); });
}

void BoundedChannelDecay(ThreadPool& pool, std::span<const float> rate, std::span<const float> bias,
                         float bound, std::span<float> a) {
  DecayChannels(pool, rate, bias, a,
                [bound](float factor, float x) { return Exp(bound * Sigmoid(factor * x)); });
}

void SigmoidOf(std::span<float> b) {
  for (float& beta : b) beta = Sigmoid(beta);
}

void GatedDelta(ThreadPool& pool, const GatedDeltaArgs& args) {
  const auto rows = static_cast<size_t>(args.at.row_begin.back());
  const auto channels = static_cast<size_t>(args.shape.channels());
  const auto heads = static_cast<size_t>(args.shape.value_heads);
  assert(args.qkv.size() == rows * channels &&
         args.decay.size() == rows * static_cast<size_t>(args.shape.decays()));
  assert(args.beta.size() == rows * heads &&
         args.y.size() == rows * static_cast<size_t>(args.shape.values()));
  constexpr size_t kRowsPerTask = 16;
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task) {
    const size_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (size_t row = task * kRowsPerTask; row < end; ++row)
      NormalizeRow(args.shape, args.qkv.data() + row * channels);
  });
  for (size_t sequence = 0; sequence < args.at.sequences(); ++sequence) RecordGates(args, sequence);
  // A head's keys and queries are read once more for each task that shares it, and a task of few tokens is
  // short.
  constexpr size_t kRowsAtOnce = 16, kSmallestTask = 65'536;
  const auto value_dim = static_cast<size_t>(args.shape.value_dim);
  const size_t tokens = std::max<size_t>(rows / std::max<size_t>(args.at.sequences(), 1), 1);
  const size_t work = tokens * static_cast<size_t>(args.shape.key_dim) * kRowsAtOnce;
  const ProductCut cut({.outs = args.at.sequences() * heads,
                        .rows = (value_dim + kRowsAtOnce - 1) / kRowsAtOnce,
                        .least_rows = (kSmallestTask + work - 1) / work},
                       pool.threads());
  pool.ParallelFor(cut.tasks(), [&](size_t task) {
    const size_t head = cut.outs(task).begin;
    const CutRange some = cut.rows(task);
    RunRowsOfHead(args, head / heads, head % heads,
                  {some.begin * kRowsAtOnce, std::min(value_dim, some.end * kRowsAtOnce)});
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
