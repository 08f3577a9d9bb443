// Linear layers and embedding look-up over weights of any DataType, read in place.
//
// The arithmetic is float32: the weight as stored, widened (dequantised) to float32, times a float32
// activation. Row-invariant: a row of the result depends on that row of x and on the weights, bit for bit,
// whatever `rows`, the number of threads or the split of a batch into calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runner/kernels/thread_pool.h"
#include "runner/weights/tensor.h"

namespace quire::runner::kernels {

// A weight matrix [out, in] as it lies in a file; `data` needs no alignment.
struct Matrix {
  const std::byte* data = nullptr;
  weights::DataType type = weights::DataType::kF32;
  int64_t out = 0;
  int64_t in = 0;  // whole blocks of `type`
};

// REQUIRES: tensor has at least `rows() * columns()` elements of data, as ModelFiles guarantees.
inline Matrix AsMatrix(const weights::Tensor& tensor) {
  return {tensor.data.data(), tensor.type, tensor.rows(), tensor.columns()};
}

// Rows [begin, end) of `w`, a matrix of their own.
inline Matrix RowsOf(const Matrix& w, int64_t begin, int64_t end) {
  if (w.data == nullptr) return w;
  return {w.data + static_cast<size_t>(begin) * weights::RowBytes(w.type, w.in), w.type, end - begin, w.in};
}

// y [rows, out] = x [rows, in] times the transpose of w. REQUIRES: sizes agree; x and y do not overlap.
void MatMul(ThreadPool& pool, std::span<const float> x, int64_t rows, const Matrix& w, std::span<float> y);

// A run of rows that meets one matrix.
struct MatMulPart {
  Matrix weight;
  int64_t begin = 0, end = 0;  // rows
};

// y [rows, out] where rows [begin, end) of x [rows, in] are multiplied with their part's matrix, all in one
// go. The bits are those of a MatMul per part. REQUIRES: all matrices have the same shape; rows in no part
// are left alone.
void MatMulParts(ThreadPool& pool, std::span<const float> x, std::span<const MatMulPart> parts,
                 std::span<float> y);

// y[i] = row ids[i] of the table, widened. y [ids, table.in]. REQUIRES: 0 <= ids[i] < table.out.
void EmbeddingRows(const Matrix& table, std::span<const int32_t> ids, std::span<float> y);

// The instruction set the kernels run with on this machine ("AVX3", "AVX2", ...), for logs.
std::string_view InstructionSet();

}  // namespace quire::runner::kernels
