// OpenBLAS's float32 product on processors without kernels of ours (x86-64 without AVX2, and architectures
// without panels).
//
// It is used only where it is bit-identical to kernels/chains.inl, row by row, for every number of rows that
// it is given, and only from as many rows on as make it faster. So it changes no result.
#pragma once

#include <cstddef>
#include <string>

namespace quire::runner::kernels {

// Inputs that are added in one chain, outputs of a call, and the most rows of one.
inline constexpr size_t kChain = 256, kBlasOuts = 64, kBlasRows = 96;

// y [rows, kBlasOuts] = (adds: +=) x [rows, kChain] times the transpose of w [kBlasOuts, kChain], whose rows
// lie side by side. Strides count numbers. Any thread.
struct BlasCall {
  const float* x;
  size_t rows, x_stride;  // rows <= kBlasRows
  const float* w;
  float* y;
  size_t y_stride;
  bool adds;
};

// Loads the library of this build (the CMake option QUIRE_BLAS) where kernels of ours are missing, compares
// it with the chains, and lets products use it from now on. Returns what was decided, for logs; empty where
// our kernels serve. Takes some 20 ms. Call it once, before the first product, before threads, and before the
// process is confined.
std::string ChooseBlas();

// As many rows take OpenBLAS; 0: none do.
size_t BlasRowsMin();
// REQUIRES: ChooseBlas() found a library.
void CallBlas(const BlasCall& call);

// For tests and benchmarks: as ChooseBlas() found it, or none.
void UseBlasFrom(size_t rows);

}  // namespace quire::runner::kernels
