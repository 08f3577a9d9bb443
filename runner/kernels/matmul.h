// Linear layers and embedding look-up over weights of any DataType, read in place.
//
// A quantized matrix in panels (panels.h) is multiplied by int8 GEMM with activations quantized to int8
// (quantized_activations.h, int8_gemm.h). The arithmetic of any other is float32: the weight as stored,
// dequantized to float32, times a float32 activation; floats in panels (float_panels.h) several times faster
// than without. Batch-invariant: a row of the result depends on that row of x and on the weights, bit for
// bit, whatever the number of rows or threads or the split of a batch into calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runner/kernels/quantized_activations.h"
#include "runner/kernels/thread_pool.h"
#include "runner/weights/tensor.h"

namespace quire::runner::kernels {

// A weight matrix [out, in] as it lies in a file; `data` needs no alignment.
struct Matrix {
  const std::byte* data = nullptr;
  weights::DataType type = weights::DataType::kF32;
  int64_t out = 0;
  int64_t in = 0;                     // whole blocks of `type`
  const std::byte* panels = nullptr;  // the same numbers in panels; null: computed from `data`
  size_t copy_stride = 0;  // bytes from the panels of a NUMA node to those of the next; 0: all read the same
  // Products make panels of `data`, some outputs at a time, where there are no `panels`: with the bits of
  // panels, not of `data` in place. REQUIRES: the type has panels.
  bool streamed = false;

  bool packed() const { return panels != nullptr || streamed; }
  bool streams() const { return panels == nullptr && streamed; }
  // The panels for this thread.
  const std::byte* near_panels() const {
    return copy_stride == 0 ? panels : panels + NodeOfThisThread() * copy_stride;
  }
};

// REQUIRES: tensor has at least `rows() * columns()` elements of data, as ModelFiles guarantees.
inline Matrix AsMatrix(const weights::Tensor& tensor) {
  return {tensor.data.data(), tensor.type, tensor.rows(), tensor.columns()};
}

// Rows [begin, end) of `w`, a matrix of their own, without panels.
inline Matrix RowsOf(const Matrix& w, int64_t begin, int64_t end) {
  if (w.data == nullptr) return w;
  return {w.data + static_cast<size_t>(begin) * weights::RowBytes(w.type, w.in), w.type, end - begin, w.in};
}

// Activations x [rows, in] that meet one matrix or several, one after another: quantized to int8 at most
// once. `scratch` may serve other inputs in between. x must not change while its input lives. A step's thread
// only.
class MatMulInput {
 public:
  // `group_breaks`: rows at which QuantizedActivations begins a new group, for MatMulParts.
  MatMulInput(std::span<const float> x, int64_t rows, QuantizedActivations& scratch,
              std::span<const int32_t> group_breaks = {})
      : x_(x),
        rows_(rows),
        in_(rows == 0 ? 0 : std::ssize(x) / rows),
        scratch_(scratch),
        group_breaks_(group_breaks) {
    scratch_.ClearCachedFor(this);
  }
  // Rows row_at[0], row_at[1], ... of x [any number, in]. Only for products with int8 panels, which need no
  // gathered copy of these rows.
  MatMulInput(std::span<const float> x, int64_t in, std::span<const int32_t> row_at,
              QuantizedActivations& scratch, std::span<const int32_t> group_breaks)
      : x_(x),
        rows_(std::ssize(row_at)),
        in_(in),
        scratch_(scratch),
        group_breaks_(group_breaks),
        row_at_(row_at) {
    scratch_.ClearCachedFor(this);
  }
  MatMulInput(const MatMulInput&) = delete;
  MatMulInput& operator=(const MatMulInput&) = delete;
  ~MatMulInput() { scratch_.ClearCachedFor(this); }

  std::span<const float> values() const { return x_; }  // REQUIRES: without row_at
  int64_t rows() const { return rows_; }
  const QuantizedActivations& Quantized(ThreadPool& pool) const;

 private:
  std::span<const float> x_;
  int64_t rows_, in_;
  QuantizedActivations& scratch_;
  std::span<const int32_t> group_breaks_, row_at_;
};

// y [rows, out] = x [rows, in] times the transpose of w. REQUIRES: sizes agree; x and y do not overlap.
void MatMul(ThreadPool& pool, const MatMulInput& x, const Matrix& w, std::span<float> y);
// The same for a matrix that is not packed().
void MatMul(ThreadPool& pool, std::span<const float> x, int64_t rows, const Matrix& w, std::span<float> y);

// A run of rows that meets one matrix.
struct MatMulPart {
  Matrix weight;
  int64_t begin = 0, end = 0;  // rows
};

// y [rows, out] where rows [begin, end) of x [rows, in] are multiplied with their part's matrix, all in one
// go. Bit-identical to one MatMul per part. REQUIRES: all matrices have the same shape and type, and
// are packed() either all or none; x has group_breaks where parts begin and end; rows in no part are left
// alone.
void MatMulParts(ThreadPool& pool, const MatMulInput& x, std::span<const MatMulPart> parts,
                 std::span<float> y);

// y[i] = row ids[i] of the table, as float32. y [ids, table.in]. REQUIRES: 0 <= ids[i] < table.out.
void EmbeddingRows(const Matrix& table, std::span<const int32_t> ids, std::span<float> y);

// The instruction set the kernels run with on this machine ("AVX3", "AVX2", ...), for logs.
std::string_view InstructionSet();

}  // namespace quire::runner::kernels
