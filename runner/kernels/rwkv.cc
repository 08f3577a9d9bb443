#include "runner/kernels/rwkv.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "runner/kernels/parallel_rows.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/rwkv.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/activations.inl"
#include "runner/kernels/fused.inl"
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_RWKV_ONCE_
#define QUIRE_RUNNER_KERNELS_RWKV_ONCE_
namespace quire::runner::kernels {
namespace {

// One head of one sequence's new tokens; each pointer is at the first of them, rows are `stride` apart.
struct RwkvHead {
  const float *r, *w, *k, *v, *removed, *a;
  float* y;
  float* state;  // [dim, dim]
  size_t dim, stride;
};

}  // namespace
}  // namespace quire::runner::kernels
#endif  // QUIRE_RUNNER_KERNELS_RWKV_ONCE_

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Value channels [p, p + kVecs vectors) of a head over tokens [begin, end).
template <size_t kVecs, bool kWhole>
HWY_INLINE void UpdateColumns(const RwkvHead& head, const Lanes<kWhole> lanes, size_t p, size_t begin,
                              size_t end) {
  const F32 d;
  for (size_t t = begin; t < end; ++t) {
    const size_t row = t * head.stride;
    const float *r = head.r + row, *w = head.w + row, *k = head.k + row;
    const float *removed = head.removed + row, *a = head.a + row;
    VF32 s[kVecs], v[kVecs], y[kVecs];
#pragma GCC unroll 4
    for (size_t i = 0; i < kVecs; ++i) {
      s[i] = hn::Zero(d);
      y[i] = hn::Zero(d);
      v[i] = lanes.Load(head.v + row + p + i * kLanes);
    }
    const float* from = head.state + p;
    for (size_t j = 0; j < head.dim; ++j, from += head.dim) {
      const VF32 kk = hn::Set(d, removed[j]);
#pragma GCC unroll 4
      for (size_t i = 0; i < kVecs; ++i) s[i] = Fused(kk, lanes.Load(from + i * kLanes), s[i]);
    }
    float* at = head.state + p;
    for (size_t j = 0; j < head.dim; ++j, at += head.dim) {
      const VF32 keep = hn::Set(d, w[j]), key = hn::Set(d, k[j]), remove = hn::Set(d, -(a[j] * removed[j]));
      const VF32 read = hn::Set(d, r[j]);
#pragma GCC unroll 4
      for (size_t i = 0; i < kVecs; ++i) {
        const VF32 kept = hn::Mul(keep, lanes.Load(at + i * kLanes));
        const VF32 now = Fused(remove, s[i], Fused(key, v[i], kept));
        lanes.Store(now, at + i * kLanes);
        y[i] = Fused(read, now, y[i]);
      }
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < kVecs; ++i) lanes.Store(y[i], head.y + row + p + i * kLanes);
  }
}

void UpdateHead(const RwkvHead& head, size_t begin, size_t end) {
  constexpr size_t kMostVecs = 4;
  size_t p = 0;
  for (; p + kMostVecs * kLanes <= head.dim; p += kMostVecs * kLanes) {
    UpdateColumns<kMostVecs>(head, Lanes<true>{kLanes}, p, begin, end);
  }
  for (; p + kLanes <= head.dim; p += kLanes) {
    UpdateColumns<1>(head, Lanes<true>{kLanes}, p, begin, end);
  }
  if (p < head.dim) UpdateColumns<1>(head, Lanes<false>{head.dim - p}, p, begin, end);
}

void LerpRow(const float* x, const float* delta, const float* weight, size_t size, float* y) {
  ForEachElement(
      size, y, [](VF32 v, VF32 d, VF32 w) HWY_ATTR { return Fused(w, d, v); }, x, delta, weight);
}

void ShiftRow(const float* before, const float* x, size_t size, float* delta) {
  ForEachElement(
      size, delta, [](VF32 b, VF32 v) HWY_ATTR { return hn::Sub(b, v); }, before, x);
}

void TanhRange(float* x, size_t size) {
  ForEachElement(
      size, x, [](VF32 v) HWY_ATTR { return hn::Tanh(F32(), v); }, x);
}

void SigmoidRow(const float* bias, float* x, size_t size) {
  if (bias == nullptr) {
    ForEachElement(
        size, x, [](VF32 v) HWY_ATTR { return Sigmoid(v); }, x);
    return;
  }
  ForEachElement(
      size, x, [](VF32 v, VF32 b) HWY_ATTR { return Sigmoid(hn::Add(v, b)); }, x, bias);
}

void DecayRow(const float* bias, float* w, size_t size) {
  ForEachElement(
      size, w,
      [](VF32 v, VF32 b) HWY_ATTR {
        const F32 d;
        return hn::Exp(d, hn::Mul(hn::Set(d, -0.60653066F), Sigmoid(hn::Add(v, b))));
      },
      w, bias);
}

void MixRange(const float* first, const float* gate, float* v, size_t size) {
  ForEachElement(
      size, v, [](VF32 f, VF32 g, VF32 x) HWY_ATTR { return Fused(g, hn::Sub(f, x), x); }, first, gate, v);
}

void KeyHead(const RwkvKeyArgs& args, size_t offset, size_t channel, size_t dim) {
  const F32 d;
  float* const k = args.k.data() + offset;
  float* const removed = args.removed.data() + offset;
  ForEachElement(
      dim, removed, [](VF32 x, VF32 w) HWY_ATTR { return hn::Mul(x, w); }, k, args.removal.data() + channel);
  const float length = std::sqrt(SumOfSquares(removed, dim) + args.inside);
  const VF32 factor = hn::Set(d, 1.0F / std::max(length, args.least));
  ForEachElement(
      dim, removed, [factor](VF32 x) HWY_ATTR { return hn::Mul(x, factor); }, removed);
  ForEachElement(
      dim, k,
      [](VF32 x, VF32 a, VF32 rate) HWY_ATTR {
        const VF32 one = hn::Set(F32(), 1.0F);
        return hn::Mul(x, Fused(hn::Sub(a, one), rate, one));
      },
      k, args.a.data() + offset, args.rate.data() + channel);
}

// sum x y z over a head, element i to sum i of kSumLanes.
HWY_INLINE float SumOfProducts(const float* x, const float* y, const float* z, size_t size) {
  LaneSums sums;
  for (size_t i = 0; i < size; i += kLanes) {
    const size_t count = size - i;
    const auto load = [i, count](const float* from) HWY_ATTR {
      return count < kLanes ? LoadFirst(from + i, count) : hn::LoadU(F32(), from + i);
    };
    VF32& sum = sums.part[i / kLanes % kSumVectors];
    sum = Fused(hn::Mul(load(x), load(y)), load(z), sum);
  }
  return TotalOf(sums.part);
}

HWY_INLINE float SumOfElements(const float* x, size_t size) {
  return SumOver(x, size, [](const VF32& sum, const VF32& v) HWY_ATTR { return hn::Add(sum, v); });
}

void OutputHead(const RwkvOutputArgs& args, size_t offset, size_t channel, size_t dim) {
  const F32 d;
  float* const y = args.y.data() + offset;
  if (!args.weight.empty()) {
    const auto count = static_cast<float>(dim);
    const VF32 mean = hn::Set(d, SumOfElements(y, dim) / count);
    ForEachElement(
        dim, y, [mean](VF32 v) HWY_ATTR { return hn::Sub(v, mean); }, y);
    const VF32 factor = hn::Set(d, 1.0F / std::sqrt(SumOfSquares(y, dim) / count + args.eps));
    ForEachElement(
        dim, y,
        [factor](VF32 v, VF32 w, VF32 b) HWY_ATTR { return hn::Add(hn::Mul(hn::Mul(v, factor), w), b); }, y,
        args.weight.data() + channel, args.bias.data() + channel);
  }
  const VF32 bonus = hn::Set(
      d, SumOfProducts(args.r.data() + offset, args.k.data() + offset, args.bonus.data() + channel, dim));
  ForEachElement(
      dim, y, [bonus](VF32 x, VF32 v) HWY_ATTR { return Fused(bonus, v, x); }, y, args.v.data() + offset);
  if (args.gate.empty()) return;
  ForEachElement(
      dim, y, [](VF32 x, VF32 g) HWY_ATTR { return hn::Mul(x, g); }, y, args.gate.data() + offset);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(UpdateHead);
HWY_EXPORT(LerpRow);
HWY_EXPORT(ShiftRow);
HWY_EXPORT(TanhRange);
HWY_EXPORT(SigmoidRow);
HWY_EXPORT(DecayRow);
HWY_EXPORT(MixRange);
HWY_EXPORT(KeyHead);
HWY_EXPORT(OutputHead);

// visit(offset, channel, head_dim) for every head of every row.
template <class Visit>
void ForEachHead(ThreadPool& pool, const RwkvShape& shape, size_t numbers, const Visit& visit) {
  const auto dim = static_cast<size_t>(shape.head_dim), width = static_cast<size_t>(shape.width());
  ForEachRow(pool, numbers / dim, dim, [&](size_t i) { visit(i * dim, i * dim % width, dim); });
}

void RecordUpdate(const RwkvUpdateArgs& args, size_t sequence) {
  float* record = args.at.Record(sequence);
  if (record == nullptr) return;
  const auto width = static_cast<size_t>(args.shape.width());
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  for (size_t t = 0; t < args.at.rows(sequence); ++t, record += args.at.record_stride()) {
    float* to = record + args.record_first;
    for (const std::span<const float> part : {args.w, args.k, args.v, args.removed, args.a}) {
      to = std::copy_n(part.data() + (first + t) * width, width, to);
    }
  }
}

void RunUpdate(const RwkvUpdateArgs& args, size_t sequence, size_t h) {
  const auto dim = static_cast<size_t>(args.shape.head_dim), width = static_cast<size_t>(args.shape.width());
  const size_t at = static_cast<size_t>(args.at.row_begin[sequence]) * width + h * dim;
  const size_t state_offset = h * dim * dim;
  const RwkvHead head{.r = args.r.data() + at,
                      .w = args.w.data() + at,
                      .k = args.k.data() + at,
                      .v = args.v.data() + at,
                      .removed = args.removed.data() + at,
                      .a = args.a.data() + at,
                      .y = args.y.data() + at,
                      .state = args.at.Delta(args.at.step->Slot(sequence)) + state_offset,
                      .dim = dim,
                      .stride = width};
  size_t begin = 0;
  for (const cache::StateCapture& capture : args.at.step->Captures(sequence)) {
    const auto end = static_cast<size_t>(capture.after);
    HWY_DYNAMIC_DISPATCH(UpdateHead)(head, begin, end);
    std::copy_n(head.state, dim * dim, args.at.Delta(capture.slot) + state_offset);
    begin = end;
  }
  HWY_DYNAMIC_DISPATCH(UpdateHead)(head, begin, args.at.rows(sequence));
}

// What remains of a sequence's rows: the tail, captured ones, records. After delta has been computed.
void StoreShift(const TokenShiftArgs& args, size_t sequence) {
  const size_t rows = args.at.rows(sequence);
  if (rows == 0) return;
  const auto channels = static_cast<size_t>(args.channels);
  const float* const x = args.x.data() + static_cast<size_t>(args.at.row_begin[sequence]) * channels;
  if (float* record = args.at.Record(sequence); record != nullptr) {
    for (size_t t = 0; t < rows; ++t, record += args.at.record_stride()) {
      std::copy_n(x + t * channels, channels, record + args.first);
    }
  }
  const auto store = [&](size_t after, std::byte* slot) {
    std::copy_n(x + (after - 1) * channels, channels, args.at.Tail(slot) + args.first);
  };
  for (const cache::StateCapture& capture : args.at.step->Captures(sequence)) {
    store(static_cast<size_t>(capture.after), capture.slot);
  }
  store(rows, args.at.step->Slot(sequence));
}

}  // namespace

void TokenShift(ThreadPool& pool, const TokenShiftArgs& args) {
  const auto channels = static_cast<size_t>(args.channels);
  assert(args.x.size() == args.delta.size());
  for (size_t sequence = 0; sequence < args.at.sequences(); ++sequence) {
    const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
    const float* const tail = args.at.Tail(args.at.step->Slot(sequence)) + args.first;
    ForEachRow(pool, args.at.rows(sequence), channels, [&](size_t t) {
      const float* const x = args.x.data() + (first + t) * channels;
      HWY_DYNAMIC_DISPATCH(ShiftRow)
      (t == 0 ? tail : x - channels, x, channels, args.delta.data() + (first + t) * channels);
    });
    StoreShift(args, sequence);
  }
}

void Lerp(ThreadPool& pool, std::span<const float> x, std::span<const float> delta,
          std::span<const float> weight, std::span<float> y) {
  const size_t width = weight.size();
  assert(x.size() == y.size() && delta.size() == y.size());
  ForEachRow(pool, x.size() / width, width, [&](size_t row) {
    const size_t at = row * width;
    HWY_DYNAMIC_DISPATCH(LerpRow)
    (x.data() + at, delta.data() + at, weight.data(), width, y.data() + at);
  });
}

void Tanh(ThreadPool& pool, std::span<float> x) {
  constexpr size_t kPart = 1024;
  ForEachRow(pool, (x.size() + kPart - 1) / kPart, kPart, [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(TanhRange)(x.data() + i * kPart, std::min(kPart, x.size() - i * kPart));
  });
}

void SigmoidBias(ThreadPool& pool, std::span<const float> bias, std::span<float> x) {
  constexpr size_t kPart = 1024;
  const size_t width = bias.empty() ? kPart : bias.size();
  ForEachRow(pool, (x.size() + width - 1) / width, width, [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(SigmoidRow)
    (bias.empty() ? nullptr : bias.data(), x.data() + i * width, std::min(width, x.size() - i * width));
  });
}

void RwkvDecay(ThreadPool& pool, std::span<const float> bias, std::span<float> w) {
  const size_t width = bias.size();
  ForEachRow(pool, w.size() / width, width, [&](size_t row) {
    HWY_DYNAMIC_DISPATCH(DecayRow)(bias.data(), w.data() + row * width, width);
  });
}

void MixTowards(ThreadPool& pool, std::span<const float> first, std::span<const float> gate,
                std::span<float> v) {
  constexpr size_t kPart = 1024;
  assert(first.size() == v.size() && gate.size() == v.size());
  ForEachRow(pool, (v.size() + kPart - 1) / kPart, kPart, [&](size_t i) {
    const size_t at = i * kPart;
    HWY_DYNAMIC_DISPATCH(MixRange)
    (first.data() + at, gate.data() + at, v.data() + at, std::min(kPart, v.size() - at));
  });
}

void RwkvKeys(ThreadPool& pool, const RwkvKeyArgs& args) {
  assert(args.k.size() == args.removed.size() && args.a.size() == args.k.size());
  ForEachHead(pool, args.shape, args.k.size(), [&](size_t offset, size_t channel, size_t dim) {
    HWY_DYNAMIC_DISPATCH(KeyHead)(args, offset, channel, dim);
  });
}

void RwkvUpdate(ThreadPool& pool, const RwkvUpdateArgs& args) {
  const auto heads = static_cast<size_t>(args.shape.heads);
  for (size_t sequence = 0; sequence < args.at.sequences(); ++sequence) RecordUpdate(args, sequence);
  pool.ParallelFor(args.at.sequences() * heads,
                   [&](size_t task) { RunUpdate(args, task / heads, task % heads); });
}

void RwkvOutput(ThreadPool& pool, const RwkvOutputArgs& args) {
  ForEachHead(pool, args.shape, args.y.size(), [&](size_t offset, size_t channel, size_t dim) {
    HWY_DYNAMIC_DISPATCH(OutputHead)(args, offset, channel, dim);
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
