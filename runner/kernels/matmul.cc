#include "runner/kernels/matmul.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <vector>

#include "runner/kernels/batch_invariance.h"
#include "runner/kernels/blas.h"
#include "runner/kernels/float_panels.h"
#include "runner/kernels/product_cut.h"
#include "runner/kernels/row_epilogue.h"
#include "runner/kernels/streamed_panels.h"
#include "runner/weights/block_formats.h"

// foreach_target.h re-includes this file, so it comes before all that is compiled once per target.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runner/kernels/matmul.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
#include "runner/kernels/chains.inl"
#include "runner/kernels/rows.inl"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace quire::runner::kernels::HWY_NAMESPACE {

// Activation rows worked on at a time, so that they stay in the second-level cache while weights stream past.
constexpr size_t kActivationBytes = 262'144;

template <class Row>
void MatMulOuts(const float* x, size_t rows, const std::byte* weights, size_t outs, size_t in, float* y,
                size_t y_stride) {
  const size_t rows_at_once = std::max<size_t>(24, kActivationBytes / (in * sizeof(float)) / 24 * 24);
  for (size_t r = 0; r < rows; r += rows_at_once) {
    DotBlock<Row>(x + r * in, in, std::min(rows_at_once, rows - r), weights, Row::Bytes(in), outs, in,
                  y + r * y_stride, y_stride);
  }
}

// Rows of a type without its own kernel: dequantized in chunks, then multiplied in float32. The
// number of rows only decides which outputs are computed together.
void MatMulDequantized(const float* x, size_t rows, const Matrix& w, size_t out_begin, size_t out_end,
                       float* y) {
  constexpr size_t kRowsAtOnce = 8;
  thread_local std::vector<float> dequantized;  // grows to the longest rows this thread has seen
  const auto in = static_cast<size_t>(w.in);
  const size_t row_bytes = weights::RowBytes(w.type, w.in);
  if (dequantized.size() < kRowsAtOnce * in) dequantized.resize(kRowsAtOnce * in);
  for (size_t out = out_begin; out < out_end; out += kRowsAtOnce) {
    const size_t outs = std::min(kRowsAtOnce, out_end - out);
    weights::Dequantize(w.type, w.data + out * row_bytes, static_cast<int64_t>(outs * in),
                        dequantized.data());
    MatMulOuts<F32Row>(x, rows, reinterpret_cast<const std::byte*>(dequantized.data()), outs, in, y + out,
                       static_cast<size_t>(w.out));
  }
}

// Outputs [out_begin, out_end) of all rows in chains, from input `in_begin` on.
void MatMulInChains(const float* x, size_t rows, const Matrix& w, size_t out_begin, size_t out_end,
                    size_t in_begin, float* y) {
  const auto in = static_cast<size_t>(w.in), out = static_cast<size_t>(w.out);
  const size_t rows_at_once = std::max<size_t>(24, kActivationBytes / (in * sizeof(float)) / 24 * 24);
  for (size_t r = 0; r < rows; r += rows_at_once) {
    ChainRange(x + r * in, std::min(rows_at_once, rows - r), w, out_begin, out_end, in_begin, y + r * out);
  }
}

// Inputs [in_begin, in_begin + kChain) of `outs` outputs as float32, to [outs, kChain].
void DequantizeChains(const Matrix& w, size_t out, size_t outs, size_t in_begin, float* to) {
  for (size_t o = 0; o < outs; ++o) DequantizeInputs(w, out + o, in_begin, kChain, to + o * kChain);
}

// Outputs [out_begin, out_end) of all rows.
void MatMulRange(const float* x, size_t rows, const Matrix& w, size_t out_begin, size_t out_end, float* y) {
  if constexpr (kInChains) return MatMulInChains(x, rows, w, out_begin, out_end, 0, y);
  const auto in = static_cast<size_t>(w.in), outs = out_end - out_begin, stride = static_cast<size_t>(w.out);
  const std::byte* first = w.data + out_begin * weights::RowBytes(w.type, w.in);
  switch (w.type) {
    case weights::DataType::kF32:
      return MatMulOuts<F32Row>(x, rows, first, outs, in, y + out_begin, stride);
    case weights::DataType::kF16:
      return MatMulOuts<F16Row>(x, rows, first, outs, in, y + out_begin, stride);
    case weights::DataType::kBF16:
      return MatMulOuts<BF16Row>(x, rows, first, outs, in, y + out_begin, stride);
    case weights::DataType::kQ8_0:
      return MatMulOuts<Q8Row>(x, rows, first, outs, in, y + out_begin, stride);
    default:
      return MatMulDequantized(x, rows, w, out_begin, out_end, y);
  }
}

void DequantizeRow(const Matrix& table, size_t row, float* y) {
  DequantizeInputs(table, row, 0, static_cast<size_t>(table.in), y);
}

}  // namespace quire::runner::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::runner::kernels {
namespace {

HWY_EXPORT(MatMulRange);
HWY_EXPORT(MatMulInChains);
HWY_EXPORT(DequantizeChains);
HWY_EXPORT(DequantizeRow);

// Multiply-adds below which waking other threads costs more than it saves.
constexpr int64_t kSerialWork = 32'768;

// The same for int8 GEMM.
constexpr int64_t kSerialInt8Work = 262'144;

// Multiply-adds of a task of int8 GEMM below which it takes less time, some 2 us, than threads need to share
// it: smaller steps use fewer threads.
constexpr int64_t kSmallestInt8Task = 65'536;

// Rows of a task of int8 GEMM, at least, in groups of rows: as many as repay the unpacking of weights. What
// is streamed is unpacked once for all rows.
constexpr size_t kLeastInt8Groups = 4;

// Panels whose products with inputs of this size, all rows together, are a task.
size_t LeastPanels(int64_t inputs) {
  const int64_t panel_work = inputs * static_cast<int64_t>(kPanelOuts);
  return static_cast<size_t>((kSmallestInt8Task + panel_work - 1) / panel_work);
}

// The cut in panels and groups of rows.
ProductCut CutInt8(const Matrix& w, int64_t rows, size_t groups, int threads) {
  ProductCut::Size size = {.outs = PanelCount(w.out), .outs_per_task = PanelCount(w.out), .rows = groups};
  if (threads == 1 || rows * w.in * w.out <= kSerialInt8Work) return {size, 1};
  size.outs_per_task = std::clamp<size_t>(
      std::max(size.outs / (static_cast<size_t>(threads) * 4), LeastPanels(rows * w.in)), 1, 64);
  size.least_rows = w.streams() ? groups : kLeastInt8Groups;
  return {size, threads};
}

bool TakesBlas(int64_t rows, const Matrix& w) {
  const size_t least = BlasRowsMin();
  return least > 0 && static_cast<size_t>(rows) >= least && static_cast<size_t>(w.in) >= kChain;
}

// kBlasOuts outputs from `out` on of all rows, by OpenBLAS as far as chains are whole, the rest by our
// kernels: the same bits. Weights are copied even where they are float32: rows a page apart compete for the
// same cache sets (30 GFLOP/s instead of 67).
void MatMulWithBlas(const float* x, size_t rows, const Matrix& w, size_t out, float* y) {
  const auto in = static_cast<size_t>(w.in), stride = static_cast<size_t>(w.out);
  thread_local std::vector<float> dequantized(kBlasOuts * kChain);
  size_t k = 0;
  for (; k + kChain <= in; k += kChain) {
    HWY_DYNAMIC_DISPATCH(DequantizeChains)(w, out, kBlasOuts, k, dequantized.data());
    for (size_t r = 0; r < rows; r += kBlasRows) {
      CallBlas({.x = x + r * in + k,
                .rows = std::min(kBlasRows, rows - r),
                .x_stride = in,
                .w = dequantized.data(),
                .y = y + r * stride + out,
                .y_stride = stride,
                .adds = k > 0});
    }
  }
  if (k < in) HWY_DYNAMIC_DISPATCH(MatMulInChains)(x, rows, w, out, out + kBlasOuts, k, y);
}

// Outputs [begin, end) of all rows.
void MatMulOutputs(const float* x, size_t rows, const Matrix& w, size_t begin, size_t end, float* y) {
  if (TakesBlas(static_cast<int64_t>(rows), w)) {
    for (; begin + kBlasOuts <= end; begin += kBlasOuts) MatMulWithBlas(x, rows, w, begin, y);
  }
  if (begin < end) HWY_DYNAMIC_DISPATCH(MatMulRange)(x, rows, w, begin, end, y);
}

std::atomic<bool> force_single_row = false;  // set once, before the first step

// Outputs per task: whole tiles, several tasks per thread.
size_t OutsPerTask(const Matrix& w, int64_t rows, int threads) {
  if (threads == 1 || rows * w.in * w.out <= kSerialWork) return static_cast<size_t>(w.out);
  const int64_t tile = TakesBlas(rows, w) ? static_cast<int64_t>(kBlasOuts) : 8;
  const int64_t share = w.out / (int64_t{threads} * 4) / tile * tile;
  return static_cast<size_t>(std::clamp<int64_t>(share, tile, 256));
}

}  // namespace

void MatMul(ThreadPool& pool, std::span<const float> x, int64_t rows, const Matrix& w, std::span<float> y) {
  assert(x.size() == static_cast<size_t>(rows * w.in) && y.size() == static_cast<size_t>(rows * w.out));
  if (rows == 0 || w.out == 0) return;
  if (force_single_row.load(std::memory_order_relaxed) && rows > 1) {
    const auto in = static_cast<size_t>(w.in), out = static_cast<size_t>(w.out);
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      MatMul(pool, x.subspan(row * in, in), 1, w, y.subspan(row * out, out));
    }
    return;
  }
  const auto outs = static_cast<size_t>(w.out);
  const size_t per_task = OutsPerTask(w, rows, pool.threads());
  pool.ParallelFor((outs + per_task - 1) / per_task, [&](size_t task) {
    const size_t begin = task * per_task;
    MatMulOutputs(x.data(), static_cast<size_t>(rows), w, begin, std::min(begin + per_task, outs), y.data());
  });
}

void ForceSingleRow() { force_single_row = true; }

const QuantizedActivations& MatMulInput::Quantized(ThreadPool& pool) const {
  if (!scratch_.IsCachedFor(this)) {
    scratch_.Quantize(pool, x_, rows_, in_, group_breaks_, row_at_);
    scratch_.SetCachedFor(this);
  }
  return scratch_;
}

namespace {

// Rows [begin, end) of x times blocks [first, last) of a matrix of floats in panels.
void FloatPanelRows(const Matrix& w, std::span<const float> x, int64_t begin, int64_t end, size_t first,
                    size_t last, std::span<float> y) {
  const int64_t step =
      force_single_row.load(std::memory_order_relaxed) ? 1 : std::max<int64_t>(end - begin, 1);
  for (int64_t row = begin; row < end; row += step) {
    RunFloatGemm(w, {.type = w.type,
                     .out = static_cast<size_t>(w.out),
                     .in = static_cast<size_t>(w.in),
                     .begin = first,
                     .end = last,
                     .x = x.data() + row * w.in,
                     .rows = static_cast<size_t>(step),
                     .y = y.data() + row * w.out});
  }
}

// Some outputs of some rows of y [rows, out], a row at a time.
void Finish(const RowEpilogue* then, CutRange rows, size_t out, CutRange outs, std::span<float> y) {
  if (then == nullptr || !*then) return;
  for (size_t row = rows.begin; row < rows.end; ++row) {
    (*then)(row, outs.begin, y.subspan(row * out + outs.begin, outs.end - outs.begin));
  }
}

// Rows that are cut together: two of the largest tiles of float panels. A task has two of them, at least.
constexpr size_t kFloatRows = 12, kLeastFloatRows = 2;

// The cut in blocks and kFloatRows rows.
ProductCut CutFloats(const Matrix& w, int64_t rows, int threads) {
  ProductCut::Size size = {.outs = FloatBlockCount(w.out),
                           .rows = (static_cast<size_t>(rows) + kFloatRows - 1) / kFloatRows};
  size.outs_per_task = size.outs;
  if (threads == 1 || rows * w.in * w.out <= kSerialWork) return {size, 1};
  size.outs_per_task = std::clamp<size_t>(size.outs / (static_cast<size_t>(threads) * 4), 1, 16);
  size.least_rows = w.streams() ? size.rows : kLeastFloatRows;
  return {size, threads};
}

// A product with weights in panels.
struct PackedGemm {
  const MatMulTarget* target = nullptr;
  const QuantizedActivations* rows = nullptr;  // of quantized weights
  ProductCut cut;
};

void RunTask(const PackedGemm& product, const MatMulInput& x, size_t task) {
  const Matrix& w = *product.target->weight;
  const std::span<float> y = product.target->y;
  const auto outs = static_cast<size_t>(w.out);
  const CutRange panels = product.cut.outs(task), part = product.cut.rows(task);
  if (IsFloat(w.type)) {
    const CutRange done = {panels.begin * kFloatBlockOuts, std::min(outs, panels.end * kFloatBlockOuts)};
    const CutRange rows = {part.begin * kFloatRows,
                           std::min(static_cast<size_t>(x.rows()), part.end * kFloatRows)};
    FloatPanelRows(w, x.values(), static_cast<int64_t>(rows.begin), static_cast<int64_t>(rows.end),
                   panels.begin, panels.end, y);
    return Finish(product.target->then, rows, outs, done, y);
  }
  RunInt8Gemm(w, {.out = outs,
                  .in = static_cast<size_t>(w.in),
                  .begin = panels.begin,
                  .end = panels.end,
                  .rows = product.rows,
                  .first_group = part.begin,
                  .last_group = part.end,
                  .y = y.data()});
  const std::span<const QuantizedActivations::Group> groups = product.rows->groups();
  const QuantizedActivations::Group& last = groups[part.end - 1];
  const CutRange done = {panels.begin * kPanelOuts, std::min(outs, panels.end * kPanelOuts)};
  Finish(product.target->then, {groups[part.begin].row, last.row + last.count}, outs, done, y);
}

}  // namespace

void MatMul(ThreadPool& pool, const MatMulInput& x, const Matrix& w, std::span<float> y) {
  MatMul(pool, x, w, RowEpilogue(), y);
}

void MatMul(ThreadPool& pool, const MatMulInput& x, const Matrix& w, const RowEpilogue& then,
            std::span<float> y) {
  const MatMulTarget target = {.weight = &w, .y = y, .then = &then};
  MatMulTogether(pool, x, {&target, 1});
}

void MatMulTogether(ThreadPool& pool, const MatMulInput& x, std::span<const MatMulTarget> targets) {
  assert(targets.size() <= kTogetherMax);
  std::array<PackedGemm, kTogetherMax> products;
  size_t count = 0, tasks = 0;
  int64_t work = 0;
  for (const MatMulTarget& target : targets) {
    const Matrix& w = *target.weight;
    const auto outs = static_cast<size_t>(w.out);
    assert(target.y.size() == static_cast<size_t>(x.rows() * w.out));
    if (x.rows() == 0 || w.out == 0) continue;
    if (!w.packed()) {
      MatMul(pool, x.values(), x.rows(), w, target.y);
      Finish(target.then, {0, static_cast<size_t>(x.rows())}, outs, {0, outs}, target.y);
      continue;
    }
    if (w.streams()) ReadAhead(w);
    PackedGemm& product = products[count++];
    product.target = &target;
    if (IsFloat(w.type)) {
      product.cut = CutFloats(w, x.rows(), pool.threads());
    } else {
      product.rows = &x.Quantized(pool);
      product.cut = CutInt8(w, x.rows(), product.rows->groups().size(), pool.threads());
    }
    tasks += product.cut.tasks();
    work += x.rows() * w.in * w.out;
  }
  if (tasks == count && work <= kSerialInt8Work) {
    for (const PackedGemm& product : std::span(products).first(count)) RunTask(product, x, 0);
    return;
  }
  pool.ParallelFor(tasks, [&](size_t task) {
    const PackedGemm* product = products.data();
    while (task >= product->cut.tasks()) task -= (product++)->cut.tasks();
    RunTask(*product, x, task);
  });
}

namespace {

void MatMulPanelParts(ThreadPool& pool, const MatMulInput& x, std::span<const MatMulPart> parts,
                      std::span<float> y) {
  const QuantizedActivations& rows = x.Quantized(pool);
  const Matrix& shape = parts.front().weight;
  constexpr size_t kMostPanels = 8;  // parts are many and their rows few
  const size_t panels = PanelCount(shape.out), threads = static_cast<size_t>(pool.threads());
  const int64_t rows_each = std::max<int64_t>(x.rows() / std::ssize(parts), 1);
  const size_t per_task = std::clamp<size_t>(
      std::max(parts.size() * panels / (threads * 4), LeastPanels(rows_each * shape.in)), 1, kMostPanels);
  const size_t tasks = (panels + per_task - 1) / per_task;
  const auto group_at = [&](int64_t row) {
    const auto found = std::ranges::lower_bound(rows.groups(), static_cast<size_t>(row), {},
                                                &QuantizedActivations::Group::row);
    return static_cast<size_t>(found - rows.groups().begin());
  };
  pool.ParallelFor(parts.size() * tasks, [&](size_t task) {
    const MatMulPart& part = parts[task / tasks];
    const size_t begin = task % tasks * per_task;
    RunInt8Gemm(part.weight, {.out = static_cast<size_t>(shape.out),
                              .in = static_cast<size_t>(shape.in),
                              .begin = begin,
                              .end = std::min(panels, begin + per_task),
                              .rows = &rows,
                              .first_group = group_at(part.begin),
                              .last_group = group_at(part.end),
                              .y = y.data()});
  });
}

}  // namespace

void MatMulParts(ThreadPool& pool, const MatMulInput& input, std::span<const MatMulPart> parts,
                 std::span<float> y) {
  if (parts.empty()) return;
  const Matrix& shape = parts.front().weight;
  for (const MatMulPart& part : parts) {
    if (part.weight.streams()) ReadAhead(part.weight);
  }
  if (shape.packed() && !IsFloat(shape.type)) return MatMulPanelParts(pool, input, parts, y);
  const std::span<const float> x = input.values();
  if (shape.packed()) {
    const size_t blocks = FloatBlockCount(shape.out);
    return pool.ParallelFor(parts.size() * blocks, [&](size_t task) {
      const MatMulPart& part = parts[task / blocks];
      FloatPanelRows(part.weight, x, part.begin, part.end, task % blocks, task % blocks + 1, y);
    });
  }
  const auto outs = static_cast<size_t>(shape.out);
  constexpr size_t kOutsPerTask = 128;  // parts are many and their rows few
  const size_t tasks_per_part = (outs + kOutsPerTask - 1) / kOutsPerTask;
  pool.ParallelFor(parts.size() * tasks_per_part, [&](size_t task) {
    const MatMulPart& part = parts[task / tasks_per_part];
    assert(part.weight.out == shape.out && part.weight.in == shape.in);
    const size_t begin = task % tasks_per_part * kOutsPerTask;
    const int64_t step = force_single_row.load(std::memory_order_relaxed) ? 1 : part.end - part.begin;
    for (int64_t row = part.begin; row < part.end; row += step) {
      MatMulOutputs(x.data() + row * shape.in, static_cast<size_t>(step), part.weight, begin,
                    std::min(begin + kOutsPerTask, outs), y.data() + row * shape.out);
    }
  });
}

void EmbeddingRows(const Matrix& table, std::span<const int32_t> ids, std::span<float> y) {
  assert(y.size() == ids.size() * static_cast<size_t>(table.in));
  for (size_t i = 0; i < ids.size(); ++i) {
    assert(ids[i] >= 0 && ids[i] < table.out);
    HWY_DYNAMIC_DISPATCH(DequantizeRow)
    (table, static_cast<size_t>(ids[i]), y.data() + i * static_cast<size_t>(table.in));
  }
}

std::string_view InstructionSet() {
  const int64_t usable = (HWY_SUPPORTED_TARGETS | HWY_STATIC_TARGET) & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

}  // namespace quire::runner::kernels
#endif  // HWY_ONCE
