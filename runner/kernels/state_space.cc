#include "runner/kernels/state_space.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runner/kernels/parallel_rows.h"
#include "runner/kernels/portable_math.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/state_space.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/activations.inl"
#include "runner/kernels/fused.inl"
#include "runner/kernels/rows.inl"
// clang-format on

#ifndef QUIRE_RUNNER_KERNELS_STATE_SPACE_ONCE_
#define QUIRE_RUNNER_KERNELS_STATE_SPACE_ONCE_
namespace quire::runner::kernels {
namespace {

// One head, or some channels, of one sequence's new tokens; each pointer is at the first of them.
struct ScanRows {
  const float* x;      // [tokens, width], x_stride apart
  const float *b, *c;  // [tokens, state], bc_stride apart
  const float* dt;     // a head: one per token; channels: [tokens, width]; dt_stride apart
  const float* decay;  // a head only: one per token
  const float* rate;   // channels only: [state, row_stride]
  const float* skip;   // a head: one; channels: [width]
  float* y;            // [tokens, width], y_stride apart
  float* state;        // [state, width], row_stride apart
  size_t width, states;
  size_t x_stride, bc_stride, dt_stride, y_stride, row_stride;
};

}  // namespace
}  // namespace quire::runner::kernels
#endif  // QUIRE_RUNNER_KERNELS_STATE_SPACE_ONCE_

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Rows [n, n + kRows) of columns [p, p + kVecs vectors) of a state over tokens [begin, end). The state's
// numbers stay in registers; y has the sum over the rows before n.
template <bool kChannels, size_t kRows, size_t kVecs, bool kWhole>
HWY_INLINE void ScanBlock(const ScanRows& rows, const Lanes<kWhole> lanes, size_t n, size_t p, size_t begin,
                          size_t end) {
  const F32 d;
  VF32 s[kRows][kVecs], rate[kRows][kVecs], skip[kVecs];
#pragma GCC unroll 4
  for (size_t v = 0; v < kVecs; ++v) {
    const size_t at = p + v * kLanes;
    skip[v] = kChannels ? lanes.Load(rows.skip + at) : hn::Set(d, *rows.skip);
#pragma GCC unroll 4
    for (size_t i = 0; i < kRows; ++i) {
      s[i][v] = lanes.Load(rows.state + (n + i) * rows.row_stride + at);
      if constexpr (kChannels) rate[i][v] = lanes.Load(rows.rate + (n + i) * rows.row_stride + at);
    }
  }
  for (size_t t = begin; t < end; ++t) {
    const float *b = rows.b + t * rows.bc_stride + n, *c = rows.c + t * rows.bc_stride + n;
    const float* const x_row = rows.x + t * rows.x_stride + p;
    const float* const dt_row = rows.dt + t * rows.dt_stride;
    float* const y_row = rows.y + t * rows.y_stride + p;
    VF32 dt[kVecs], input[kVecs], y[kVecs], decay = hn::Zero(d);
    if constexpr (!kChannels) decay = hn::Set(d, rows.decay[t * rows.dt_stride]);
#pragma GCC unroll 4
    for (size_t v = 0; v < kVecs; ++v) {
      const VF32 x = lanes.Load(x_row + v * kLanes);
      dt[v] = kChannels ? lanes.Load(dt_row + p + v * kLanes) : hn::Set(d, *dt_row);
      input[v] = hn::Mul(x, dt[v]);
      y[v] = n == 0 ? hn::Mul(skip[v], x) : lanes.Load(y_row + v * kLanes);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < kRows; ++i) {
      const VF32 b_i = hn::Set(d, b[i]), c_i = hn::Set(d, c[i]);
#pragma GCC unroll 4
      for (size_t v = 0; v < kVecs; ++v) {
        const VF32 keep = kChannels ? hn::Exp(d, hn::Mul(dt[v], rate[i][v])) : decay;
        s[i][v] = Fused(b_i, input[v], hn::Mul(s[i][v], keep));
        y[v] = Fused(c_i, s[i][v], y[v]);
      }
    }
#pragma GCC unroll 4
    for (size_t v = 0; v < kVecs; ++v) lanes.Store(y[v], y_row + v * kLanes);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVecs; ++v) {
      lanes.Store(s[i][v], rows.state + (n + i) * rows.row_stride + p + v * kLanes);
    }
  }
}

template <bool kChannels, size_t kVecs, bool kWhole>
HWY_INLINE void ScanColumns(const ScanRows& rows, const Lanes<kWhole> lanes, size_t p, size_t begin,
                            size_t end) {
  constexpr size_t kRows = 4;
  size_t n = 0;
  for (; n + kRows <= rows.states; n += kRows) {
    ScanBlock<kChannels, kRows, kVecs, kWhole>(rows, lanes, n, p, begin, end);
  }
  for (; n < rows.states; ++n) ScanBlock<kChannels, 1, kVecs, kWhole>(rows, lanes, n, p, begin, end);
}

// All columns over tokens [begin, end).
template <bool kChannels>
HWY_INLINE void Scan(const ScanRows& rows, size_t begin, size_t end) {
  constexpr size_t kMostVecs =
      kManyRegisters ? 4 : 2;  // 16 vectors of state, 12 of a token: 28 of 32 registers
  size_t p = 0;
  for (; p + kMostVecs * kLanes <= rows.width; p += kMostVecs * kLanes) {
    ScanColumns<kChannels, kMostVecs>(rows, Lanes<true>{kLanes}, p, begin, end);
  }
  for (; p + kLanes <= rows.width; p += kLanes) {
    ScanColumns<kChannels, 1>(rows, Lanes<true>{kLanes}, p, begin, end);
  }
  if (p < rows.width) ScanColumns<kChannels, 1>(rows, Lanes<false>{rows.width - p}, p, begin, end);
}

void ScanHead(const ScanRows& rows, size_t begin, size_t end) { Scan<false>(rows, begin, end); }
void ScanChannels(const ScanRows& rows, size_t begin, size_t end) { Scan<true>(rows, begin, end); }

void GatedNormRow(const GatedNormShape& shape, const float* weight, const float* gate, size_t width,
                  float* x) {
  const F32 d;
  const auto group = static_cast<size_t>(shape.group);
  const auto gated = [](VF32 v, VF32 g) HWY_ATTR { return hn::Mul(v, Silu(g)); };
  if (!shape.norm_first) ForEachElement(width, x, gated, x, gate);
  for (size_t at = 0; at < width; at += group) {
    const float mean = SumOfSquares(x + at, group) / static_cast<float>(group);
    const VF32 factor = hn::Set(d, 1.0F / std::sqrt(mean + shape.eps));
    ForEachElement(
        group, x + at, [factor](VF32 v, VF32 w) HWY_ATTR { return hn::Mul(hn::Mul(v, factor), w); }, x + at,
        weight + at);
  }
  if (shape.norm_first) ForEachElement(width, x, gated, x, gate);
}

void ScaleColumnsRow(const float* factors, size_t width, float* x) {
  ForEachElement(
      width, x, [](VF32 v, VF32 f) HWY_ATTR { return hn::Mul(v, f); }, x, factors);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(ScanHead);
HWY_EXPORT(ScanChannels);
HWY_EXPORT(GatedNormRow);
HWY_EXPORT(ScaleColumnsRow);

// Runs `scan(rows, begin, end)` up to each capture, which copy(capture) then fills, and to the end.
template <class Run, class Copy>
void RunWithCaptures(const RecurrentLayer& at, size_t sequence, const Run& run, const Copy& copy) {
  size_t begin = 0;
  for (const cache::StateCapture& capture : at.step->Captures(sequence)) {
    const auto end = static_cast<size_t>(capture.after);
    run(begin, end);
    copy(capture.slot);
    begin = end;
  }
  run(begin, at.rows(sequence));
}

void ScanHeadRows(const ScanRows& rows, size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(ScanHead)(rows, begin, end);
}
void ScanChannelRows(const ScanRows& rows, size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(ScanChannels)(rows, begin, end);
}

// As ScanHeadRows. Rows of many tokens lie far apart, at distances that share cache sets: a few dozen of them
// are moved together, so that all of the head's state passes over them from the first caches.
void ScanHeadInBlocks(const ScanRows& rows, size_t begin, size_t end) {
  constexpr size_t kFloats = 16'384, kMostTokens = 32, kLeastTokens = 4;
  const size_t width = rows.width, states = rows.states;
  const size_t block = std::min(kMostTokens, kFloats / (2 * width + 2 * states));
  if (end - begin < kLeastTokens || block < kLeastTokens) return ScanHeadRows(rows, begin, end);
  alignas(64) float memory[kFloats];
  float *const x = memory, *const b = x + block * width, *const c = b + block * states;
  float* const y = c + block * states;
  for (size_t at = begin; at < end; at += block) {
    const size_t count = std::min(block, end - at);
    for (size_t t = 0; t < count; ++t) {
      std::copy_n(rows.x + (at + t) * rows.x_stride, width, x + t * width);
      std::copy_n(rows.b + (at + t) * rows.bc_stride, states, b + t * states);
      std::copy_n(rows.c + (at + t) * rows.bc_stride, states, c + t * states);
    }
    ScanRows near = rows;
    near.x = x;
    near.b = b;
    near.c = c;
    near.y = y;
    near.dt = rows.dt + at * rows.dt_stride;
    near.decay = rows.decay + at * rows.dt_stride;
    near.x_stride = near.y_stride = width;
    near.bc_stride = states;
    ScanHeadRows(near, 0, count);
    for (size_t t = 0; t < count; ++t) std::copy_n(y + t * width, width, rows.y + (at + t) * rows.y_stride);
  }
}

void RunHead(const SsdArgs& args, size_t sequence, size_t h) {
  const SsdShape& shape = args.shape;
  const auto heads = static_cast<size_t>(shape.heads), dim = static_cast<size_t>(shape.head_dim);
  const auto groups = static_cast<size_t>(shape.groups), states = static_cast<size_t>(shape.state);
  const auto channels = static_cast<size_t>(shape.channels()), inner = heads * dim;
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  const float* const xbc = args.xbc.data() + first * channels;
  const size_t group = h / (heads / groups), offset = h * states * dim;
  const ScanRows rows{.x = xbc + h * dim,
                      .b = xbc + inner + group * states,
                      .c = xbc + inner + (groups + group) * states,
                      .dt = args.dt.data() + first * heads + h,
                      .decay = args.decay.data() + first * heads + h,
                      .rate = nullptr,
                      .skip = args.skip.data() + h,
                      .y = args.y.data() + first * inner + h * dim,
                      .state = args.at.Delta(args.at.step->Slot(sequence)) + offset,
                      .width = dim,
                      .states = states,
                      .x_stride = channels,
                      .bc_stride = channels,
                      .dt_stride = heads,
                      .y_stride = inner,
                      .row_stride = dim};
  RunWithCaptures(
      args.at, sequence, [&](size_t begin, size_t end) { ScanHeadInBlocks(rows, begin, end); },
      [&](std::byte* slot) { std::copy_n(rows.state, states * dim, args.at.Delta(slot) + offset); });
}

void RecordGates(const SsdArgs& args, size_t sequence) {
  float* record = args.at.Record(sequence);
  if (record == nullptr) return;
  const auto heads = static_cast<size_t>(args.shape.heads);
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  for (size_t t = 0; t < args.at.rows(sequence); ++t, record += args.at.record_stride()) {
    float* const gates = record + args.shape.channels();
    std::copy_n(args.dt.data() + (first + t) * heads, heads, gates);
    std::copy_n(args.decay.data() + (first + t) * heads, heads, gates + heads);
  }
}

void RunChannels(const SelectiveScanArgs& args, size_t sequence, size_t from, size_t count) {
  const auto inner = static_cast<size_t>(args.inner), states = static_cast<size_t>(args.state);
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  const ScanRows rows{.x = args.x.data() + first * inner + from,
                      .b = args.b.data() + first * states,
                      .c = args.c.data() + first * states,
                      .dt = args.dt.data() + first * inner + from,
                      .decay = nullptr,
                      .rate = args.rate.data() + from,
                      .skip = args.skip.data() + from,
                      .y = args.y.data() + first * inner + from,
                      .state = args.at.Delta(args.at.step->Slot(sequence)) + from,
                      .width = count,
                      .states = states,
                      .x_stride = inner,
                      .bc_stride = states,
                      .dt_stride = inner,
                      .y_stride = inner,
                      .row_stride = inner};
  RunWithCaptures(
      args.at, sequence, [&](size_t begin, size_t end) { ScanChannelRows(rows, begin, end); },
      [&](std::byte* slot) {
        for (size_t n = 0; n < states; ++n) {
          std::copy_n(rows.state + n * inner, count, args.at.Delta(slot) + n * inner + from);
        }
      });
}

void RecordSteps(const SelectiveScanArgs& args, size_t sequence) {
  float* record = args.at.Record(sequence);
  if (record == nullptr) return;
  const auto inner = static_cast<size_t>(args.inner), states = static_cast<size_t>(args.state);
  const auto first = static_cast<size_t>(args.at.row_begin[sequence]);
  for (size_t t = 0; t < args.at.rows(sequence); ++t, record += args.at.record_stride()) {
    std::copy_n(args.dt.data() + (first + t) * inner, inner, record + inner);
    std::copy_n(args.b.data() + (first + t) * states, states, record + 2 * inner);
  }
}

}  // namespace

void SsdGates(ThreadPool& pool, const SsdTimeSteps& steps, std::span<float> dt, std::span<float> decay) {
  const size_t heads = steps.bias.size();
  assert(steps.rate.size() == heads && dt.size() == decay.size() && dt.size() % heads == 0);
  // Softplus and Exp of single numbers, in float64.
  ForEachRow(pool, dt.size() / heads, 32 * heads, [&](size_t row) {
    for (size_t head = 0, i = row * heads; head < heads; ++head, ++i) {
      dt[i] = std::clamp(Softplus(dt[i] + steps.bias[head]), steps.low, steps.high);
      decay[i] = Exp(dt[i] * steps.rate[head]);
    }
  });
}

void SsdScan(ThreadPool& pool, const SsdArgs& args) {
  const auto rows = static_cast<size_t>(args.at.row_begin.back());
  const auto heads = static_cast<size_t>(args.shape.heads);
  assert(args.xbc.size() == rows * static_cast<size_t>(args.shape.channels()));
  assert(args.dt.size() == rows * heads && args.decay.size() == rows * heads && args.skip.size() == heads);
  assert(args.y.size() == rows * static_cast<size_t>(args.shape.inner()));
  if (rows == 0) return;
  for (size_t sequence = 0; sequence < args.at.sequences(); ++sequence) RecordGates(args, sequence);
  pool.ParallelFor(args.at.sequences() * heads,
                   [&](size_t task) { RunHead(args, task / heads, task % heads); });
}

void SoftplusRows(ThreadPool& pool, std::span<const float> bias, std::span<float> dt) {
  const size_t width = bias.size();
  ForEachRow(pool, dt.size() / width, 16 * width, [&](size_t row) {
    for (size_t i = 0; i < width; ++i) dt[row * width + i] = Softplus(dt[row * width + i] + bias[i]);
  });
}

void SelectiveScan(ThreadPool& pool, const SelectiveScanArgs& args) {
  const auto rows = static_cast<size_t>(args.at.row_begin.back());
  const auto inner = static_cast<size_t>(args.inner);
  assert(args.x.size() == rows * inner && args.dt.size() == rows * inner && args.y.size() == rows * inner);
  if (rows == 0) return;
  constexpr size_t kPerTask = 128;
  const size_t parts = (inner + kPerTask - 1) / kPerTask;
  for (size_t sequence = 0; sequence < args.at.sequences(); ++sequence) RecordSteps(args, sequence);
  pool.ParallelFor(args.at.sequences() * parts, [&](size_t task) {
    const size_t from = task % parts * kPerTask;
    RunChannels(args, task / parts, from, std::min(kPerTask, inner - from));
  });
}

void GatedRmsNorm(ThreadPool& pool, const GatedNormShape& shape, std::span<const float> weight,
                  std::span<const float> gate, std::span<float> x) {
  const size_t width = weight.size();
  assert(gate.size() == x.size() && x.size() % width == 0 && width % static_cast<size_t>(shape.group) == 0);
  ForEachRow(pool, x.size() / width, width, [&](size_t row) {
    HWY_DYNAMIC_DISPATCH(GatedNormRow)
    (shape, weight.data(), gate.data() + row * width, width, x.data() + row * width);
  });
}

void ScaleColumns(ThreadPool& pool, std::span<const float> factors, std::span<float> x) {
  const size_t width = factors.size();
  assert(x.size() % width == 0);
  ForEachRow(pool, x.size() / width, width, [&](size_t row) {
    HWY_DYNAMIC_DISPATCH(ScaleColumnsRow)(factors.data(), width, x.data() + row * width);
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
