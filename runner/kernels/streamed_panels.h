// Products with matrices whose weights stay in their file (Matrix::streamed): a thread fills panels of some
// outputs, multiplies them and forgets them. The panels are those of panels.h and float_panels.h, and so are
// the bits.
#pragma once

#include <cstddef>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/matmul.h"

namespace quire::runner::kernels {

// Memory that each thread takes for products with `w`, and keeps: panels that stay in the second-level cache,
// but at least one (of floats: one block).
size_t StreamedBytes(const Matrix& w);

// Asks the system to read the file's bytes ahead; returns at once. For the thread that starts a product.
void ReadAhead(const Matrix& w);

// Panels [task.begin, task.end) of `w`, which has panels or is streamed. task.panels and task.first are set
// here.
void RunInt8Gemm(const Matrix& w, GemmTask task);
// The same of blocks of a float matrix.
void RunFloatGemm(const Matrix& w, FloatGemmTask task);

}  // namespace quire::runner::kernels
