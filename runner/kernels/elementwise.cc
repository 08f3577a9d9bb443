#include "runner/kernels/elementwise.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runner/kernels/portable_math.h"
#include "runner/kernels/row_epilogue.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/elementwise.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "runner/kernels/activations.inl"
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

void RmsNormRow(const float* x, const float* weight, float eps, size_t size, float* y) {
  const F32 d;
  const float mean = SumOfSquares(x, size) / static_cast<float>(size);
  const VF32 factor = hn::Set(d, 1.0F / std::sqrt(mean + eps));
  ForEachElement(
      size, y, [factor](VF32 v, VF32 w) HWY_ATTR { return hn::Mul(hn::Mul(v, factor), w); }, x, weight);
}

HWY_INLINE float SumOf(const float* x, size_t size) {
  return SumOver(x, size, [](const VF32& sum, const VF32& v) HWY_ATTR { return hn::Add(v, sum); });
}

// bias: null where there is none.
void LayerNormRow(const float* x, const float* weight, const float* bias, float eps, size_t size, float* y) {
  const F32 d;
  const VF32 mean = hn::Set(d, SumOf(x, size) / static_cast<float>(size));
  ForEachElement(
      size, y, [mean](VF32 v) HWY_ATTR { return hn::Sub(v, mean); }, x);
  RmsNormRow(y, weight, eps, size, y);
  if (bias == nullptr) return;
  ForEachElement(
      size, y, [](VF32 v, VF32 b) HWY_ATTR { return hn::Add(v, b); }, y, bias);
}

void AddRange(const float* x, float* y, size_t size) {
  ForEachElement(
      size, y, [](VF32 a, VF32 b) HWY_ATTR { return hn::Add(a, b); }, x, y);
}

void SiluMulRange(const float* up, float* gate, size_t size) {
  ForEachElement(
      size, gate, [](VF32 g, VF32 u) HWY_ATTR { return hn::Mul(Silu(g), u); }, gate, up);
}

void ReluMulRange(const float* up, float* gate, size_t size) {
  ForEachElement(
      size, gate, [](VF32 g, VF32 u) HWY_ATTR { return hn::Mul(hn::Max(g, hn::Zero(F32())), u); }, gate, up);
}

void GeluMulRange(const float* up, float* gate, size_t size) {
  ForEachElement(
      size, gate, [](VF32 g, VF32 u) HWY_ATTR { return hn::Mul(Gelu(g), u); }, gate, up);
}

void ClampedSwigluRange(const SwigluClamp& clamp, const float* up, float* gate, size_t size) {
  ForEachElement(
      size, gate,
      [clamp](VF32 g, VF32 u) HWY_ATTR {
        const F32 d;
        const VF32 top = hn::Set(d, clamp.limit), bottom = hn::Set(d, -clamp.limit);
        if (!clamp.late) g = hn::Min(g, top);
        u = hn::Add(hn::Clamp(u, bottom, top), hn::Set(d, clamp.shift));
        const VF32 gated = OverLogistic(g, hn::Mul(g, hn::Set(d, clamp.slope)));
        return hn::Mul(clamp.late ? hn::Min(gated, top) : gated, u);
      },
      gate, up);
}

void MulRange(const float* x, float* y, size_t size) {
  ForEachElement(
      size, y, [](VF32 a, VF32 b) HWY_ATTR { return hn::Mul(a, b); }, x, y);
}

void SiluRange(float* x, size_t size) {
  ForEachElement(
      size, x, [](VF32 v) HWY_ATTR { return Silu(v); }, x);
}

void GeluRange(float* x, size_t size) {
  ForEachElement(
      size, x, [](VF32 v) HWY_ATTR { return Gelu(v); }, x);
}

void SquaredReluRange(float* x, size_t size) {
  ForEachElement(
      size, x,
      [](VF32 v) HWY_ATTR {
        const VF32 positive = hn::Max(v, hn::Zero(F32()));
        return hn::Mul(positive, positive);
      },
      x);
}

void XieluRange(float positive, float negative, float beta, float eps, float* x, size_t size) {
  const F32 d;
  const VF32 p = hn::Set(d, positive), n = hn::Set(d, negative), b = hn::Set(d, beta), e = hn::Set(d, eps);
  ForEachElement(
      size, x,
      [p, n, b, e](VF32 v) HWY_ATTR {
        const VF32 straight = hn::Mul(b, v);
        const VF32 below = hn::Sub(hn::Expm1(F32(), hn::Min(v, e)), v);
        return hn::IfThenElse(hn::Gt(v, hn::Zero(F32())), hn::MulAdd(hn::Mul(p, v), v, straight),
                              hn::MulAdd(below, n, straight));
      },
      x);
}

void SigmoidMulRange(const float* gate, float* y, size_t size) {
  ForEachElement(
      size, y, [](VF32 g, VF32 v) HWY_ATTR { return hn::Mul(Sigmoid(g), v); }, gate, y);
}

void ScaleRange(float factor, float* y, size_t size) {
  const VF32 f = hn::Set(F32(), factor);
  ForEachElement(
      size, y, [f](VF32 v) HWY_ATTR { return hn::Mul(v, f); }, y);
}

void MulAddRange(float factor, const float* x, float* y, size_t size) {
  const VF32 f = hn::Set(F32(), factor);
  ForEachElement(
      size, y, [f](VF32 a, VF32 b) HWY_ATTR { return hn::MulAdd(a, f, b); }, x, y);
}

void SoftCapRange(float cap, float* y, size_t size) {
  const VF32 c = hn::Set(F32(), cap);
  ForEachElement(
      size, y, [c](VF32 v) HWY_ATTR { return hn::Mul(c, hn::Tanh(F32(), hn::Div(v, c))); }, y);
}

void RopeHead(const float* cos, const float* sin, size_t n, float* x) {
  const auto turn = [](VF32 a, VF32 b, VF32 c, VF32 s, VF32* low, VF32* high) HWY_ATTR {
    *low = hn::NegMulAdd(b, s, hn::Mul(a, c));
    *high = hn::MulAdd(a, s, hn::Mul(b, c));
  };
  const F32 d;
  VF32 low, high;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    turn(hn::LoadU(d, x + i), hn::LoadU(d, x + n + i), hn::LoadU(d, cos + i), hn::LoadU(d, sin + i), &low,
         &high);
    hn::StoreU(low, d, x + i);
    hn::StoreU(high, d, x + n + i);
  }
  if (const size_t rest = n - i; rest != 0) {
    turn(LoadFirst(x + i, rest), LoadFirst(x + n + i, rest), LoadFirst(cos + i, rest),
         LoadFirst(sin + i, rest), &low, &high);
    StoreFirst(low, x + i, rest);
    StoreFirst(high, x + n + i, rest);
  }
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(LayerNormRow);
HWY_EXPORT(AddRange);
HWY_EXPORT(SiluMulRange);
HWY_EXPORT(GeluMulRange);
HWY_EXPORT(ReluMulRange);
HWY_EXPORT(ClampedSwigluRange);
HWY_EXPORT(MulRange);
HWY_EXPORT(SiluRange);
HWY_EXPORT(GeluRange);
HWY_EXPORT(SquaredReluRange);
HWY_EXPORT(XieluRange);
HWY_EXPORT(SigmoidMulRange);
HWY_EXPORT(ScaleRange);
HWY_EXPORT(MulAddRange);
HWY_EXPORT(SoftCapRange);
HWY_EXPORT(RopeHead);

// Elements per task: some microseconds of work.
constexpr size_t kTaskElements = 16'384;

// Calls fn(begin, end) over [0, count) in tasks of about kTaskElements elements, `unit` elements each step.
template <class Fn>
void InTasks(ThreadPool& pool, size_t count, size_t unit, Fn&& fn) {
  const size_t per_task = std::max<size_t>(1, kTaskElements / unit);
  pool.ParallelFor((count + per_task - 1) / per_task,
                   [&](size_t task) { fn(task * per_task, std::min(count, (task + 1) * per_task)); });
}

// x[2i], x[2i + 1] to x[i], x[i + n].
void Unzip(float* x, size_t n) {
  float odd[kRopeFrequenciesMax];
  for (size_t i = 0; i < n; ++i) {
    odd[i] = x[2 * i + 1];
    x[i] = x[2 * i];
  }
  std::copy_n(odd, n, x + n);
}

// The inverse.
void Zip(float* x, size_t n) {
  float low[kRopeFrequenciesMax];
  std::copy_n(x, n, low);
  for (size_t i = 0; i < n; ++i) {
    x[2 * i] = low[i];
    x[2 * i + 1] = x[n + i];
  }
}

}  // namespace

void RmsNorm(ThreadPool& pool, std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> y) {
  const size_t size = weight.size();
  assert(size != 0 && x.size() == y.size() && x.size() % size == 0);
  InTasks(pool, x.size() / size, size, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(RmsNormRow)
      (x.data() + row * size, weight.data(), eps, size, y.data() + row * size);
    }
  });
}

void LayerNorm(ThreadPool& pool, std::span<const float> x, std::span<const float> weight,
               std::span<const float> bias, float eps, std::span<float> y) {
  const size_t size = weight.size();
  assert(size != 0 && x.size() == y.size() && x.size() % size == 0 && (bias.empty() || bias.size() == size));
  const float* const added = bias.empty() ? nullptr : bias.data();
  InTasks(pool, x.size() / size, size, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(LayerNormRow)
      (x.data() + row * size, weight.data(), added, eps, size, y.data() + row * size);
    }
  });
}

void Add(ThreadPool& pool, std::span<const float> x, std::span<float> y) {
  assert(x.size() == y.size());
  InTasks(pool, x.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(AddRange)(x.data() + begin, y.data() + begin, end - begin);
  });
}

void Mul(ThreadPool& pool, std::span<const float> x, std::span<float> y) {
  assert(x.size() == y.size());
  InTasks(pool, x.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(MulRange)(x.data() + begin, y.data() + begin, end - begin);
  });
}

void AddBias(std::span<const float> bias, std::span<float> y) {
  assert(!bias.empty() && y.size() % bias.size() == 0);
  for (size_t row = 0; row < y.size(); row += bias.size()) {
    HWY_DYNAMIC_DISPATCH(AddRange)(bias.data(), y.data() + row, bias.size());
  }
}

void SiluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate) {
  assert(up.size() == gate.size());
  InTasks(pool, up.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(SiluMulRange)(up.data() + begin, gate.data() + begin, end - begin);
  });
}

void GeluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate) {
  assert(up.size() == gate.size());
  InTasks(pool, up.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(GeluMulRange)(up.data() + begin, gate.data() + begin, end - begin);
  });
}

void ReluMul(ThreadPool& pool, std::span<const float> up, std::span<float> gate) {
  assert(up.size() == gate.size());
  InTasks(pool, up.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(ReluMulRange)(up.data() + begin, gate.data() + begin, end - begin);
  });
}

void SiluMul(std::span<const float> up, std::span<float> gate) {
  assert(up.size() == gate.size());
  HWY_DYNAMIC_DISPATCH(SiluMulRange)(up.data(), gate.data(), gate.size());
}

void GeluMul(std::span<const float> up, std::span<float> gate) {
  assert(up.size() == gate.size());
  HWY_DYNAMIC_DISPATCH(GeluMulRange)(up.data(), gate.data(), gate.size());
}

void ClampedSwiglu(ThreadPool& pool, const SwigluClamp& clamp, std::span<const float> up,
                   std::span<float> gate) {
  assert(up.size() == gate.size());
  InTasks(pool, up.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(ClampedSwigluRange)(clamp, up.data() + begin, gate.data() + begin, end - begin);
  });
}

void Silu(ThreadPool& pool, std::span<float> x) {
  InTasks(pool, x.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(SiluRange)(x.data() + begin, end - begin);
  });
}

void Gelu(ThreadPool& pool, std::span<float> x) {
  InTasks(pool, x.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(GeluRange)(x.data() + begin, end - begin);
  });
}

void Silu(std::span<float> x) { HWY_DYNAMIC_DISPATCH(SiluRange)(x.data(), x.size()); }

void Gelu(std::span<float> x) { HWY_DYNAMIC_DISPATCH(GeluRange)(x.data(), x.size()); }

void SquaredRelu(ThreadPool& pool, std::span<float> x) {
  InTasks(pool, x.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(SquaredReluRange)(x.data() + begin, end - begin);
  });
}

void Xielu(ThreadPool& pool, const XieluShape& shape, std::span<float> x) {
  InTasks(pool, x.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(XieluRange)
    (shape.positive, shape.negative, shape.beta, shape.eps, x.data() + begin, end - begin);
  });
}

void SigmoidMul(ThreadPool& pool, std::span<const float> gate, std::span<float> y) {
  assert(gate.size() == y.size());
  InTasks(pool, y.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(SigmoidMulRange)(gate.data() + begin, y.data() + begin, end - begin);
  });
}

namespace {

// Row i of y [gate.size(), width] *= factor(gate[i]).
void MulRows(ThreadPool& pool, std::span<const float> gate, float (*factor)(float), std::span<float> y) {
  if (gate.empty()) return;
  const size_t width = y.size() / gate.size();
  assert(y.size() == gate.size() * width);
  InTasks(pool, gate.size(), width, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      HWY_DYNAMIC_DISPATCH(ScaleRange)(factor(gate[row]), y.data() + row * width, width);
    }
  });
}

}  // namespace

void SigmoidMulRows(ThreadPool& pool, std::span<const float> gate, std::span<float> y) {
  MulRows(pool, gate, Sigmoid, y);
}

void SoftplusMulRows(ThreadPool& pool, std::span<const float> gate, std::span<float> y) {
  MulRows(pool, gate, Softplus, y);
}

void Scale(ThreadPool& pool, float factor, std::span<float> y) {
  InTasks(pool, y.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(ScaleRange)(factor, y.data() + begin, end - begin);
  });
}

void SoftCap(ThreadPool& pool, float cap, std::span<float> y) {
  assert(cap > 0);
  InTasks(pool, y.size(), 1, [&](size_t begin, size_t end) {
    HWY_DYNAMIC_DISPATCH(SoftCapRange)(cap, y.data() + begin, end - begin);
  });
}

void MulAdd(float factor, std::span<const float> x, std::span<float> y) {
  assert(x.size() == y.size());
  HWY_DYNAMIC_DISPATCH(MulAddRange)(factor, x.data(), y.data(), x.size());
}

void SplitHalves(ThreadPool& pool, std::span<const float> x, int64_t half, std::span<float> first,
                 std::span<float> second) {
  const auto n = static_cast<size_t>(half);
  assert(first.size() == second.size() && x.size() == 2 * first.size() && first.size() % n == 0);
  InTasks(pool, first.size() / n, n, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      std::copy_n(x.data() + 2 * i * n, n, first.data() + i * n);
      std::copy_n(x.data() + (2 * i + 1) * n, n, second.data() + i * n);
    }
  });
}

namespace {

// axis_of(i): which of the positions frequency i belongs to.
template <class AxisOf>
void FillRopeTable(ThreadPool& pool, const std::array<std::span<const int64_t>, 3>& positions,
                   const AxisOf& axis_of, std::span<const float> frequencies, std::span<float> cos,
                   std::span<float> sin, float magnitude) {
  const size_t rows = positions[0].size(), n = frequencies.size();
  assert(cos.size() == rows * n && sin.size() == cos.size());
  constexpr size_t kCostOfAnAngle = 64;  // in elements of the other loops here
  InTasks(pool, rows, n * kCostOfAnAngle, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      for (size_t i = 0; i < n; ++i) {
        const double angle = static_cast<float>(positions[axis_of(i)][row]) * frequencies[i];
        const SineCosine of = SineAndCosine(angle);
        cos[row * n + i] = magnitude * static_cast<float>(of.cosine);
        sin[row * n + i] = magnitude * static_cast<float>(of.sine);
      }
    }
  });
}

}  // namespace

void RopeTable(ThreadPool& pool, std::span<const int64_t> positions, std::span<const float> frequencies,
               std::span<float> cos, std::span<float> sin, float magnitude) {
  const auto first = [](size_t) { return size_t{0}; };
  FillRopeTable(pool, {positions, {}, {}}, first, frequencies, cos, sin, magnitude);
}

void RopeTable(ThreadPool& pool, const std::array<std::span<const int64_t>, 3>& positions,
               std::span<const uint8_t> axes, std::span<const float> frequencies, std::span<float> cos,
               std::span<float> sin, float magnitude) {
  assert(axes.size() == frequencies.size());
  const auto axis_of = [axes](size_t i) { return size_t{axes[i]}; };
  FillRopeTable(pool, positions, axis_of, frequencies, cos, sin, magnitude);
}

void Rope(ThreadPool& pool, std::span<const float> cos, std::span<const float> sin, int64_t frequencies,
          int64_t head_dim, int64_t rows, std::span<float> x, RopePairs pairs) {
  const auto n = static_cast<size_t>(frequencies), dim = static_cast<size_t>(head_dim);
  if (rows == 0) return;
  const size_t row_size = x.size() / static_cast<size_t>(rows);
  assert(2 * n <= dim && n <= kRopeFrequenciesMax && cos.size() == static_cast<size_t>(rows) * n &&
         row_size % dim == 0);
  InTasks(pool, static_cast<size_t>(rows), row_size, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      for (size_t head = row * row_size; head < (row + 1) * row_size; head += dim) {
        if (pairs != RopePairs::kHalves) Unzip(x.data() + head, n);
        HWY_DYNAMIC_DISPATCH(RopeHead)(cos.data() + row * n, sin.data() + row * n, n, x.data() + head);
        if (pairs == RopePairs::kInterleaved) Zip(x.data() + head, n);
      }
    }
  });
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
