#include "runner/kernels/batch_invariance.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "runner/kernels/float_panels.h"
#include "runner/kernels/matmul.h"
#include "runner/kernels/thread_pool.h"
#include "runner/weights/block_formats.h"

namespace quire::runner::kernels {
namespace {

using weights::DataType;

// A whole chain and a part of one, outputs that OpenBLAS takes and some that it does not (blas.h).
constexpr int64_t kIn = 320;
constexpr int64_t kOut = 64 + 37;
constexpr int64_t kRows = 67;

// Random finite weights, written as the type stores them.
std::vector<std::byte> RandomWeights(DataType type, std::mt19937& random) {
  std::vector<std::byte> bytes(weights::RowBytes(type, kIn) * kOut);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() & 0xFF); });
  if (type == DataType::kF32 || type == DataType::kBF16) {
    // The second highest byte, and the highest, hold the exponent: near that of one.
    const size_t width = type == DataType::kF32 ? 4 : 2;
    for (size_t at = width - 1; at < bytes.size(); at += width)
      bytes[at] = (bytes[at] & std::byte{0x80}) | std::byte{0x3E};
  } else if (type == DataType::kF16) {
    for (size_t at = 1; at < bytes.size(); at += 2) bytes[at] &= std::byte{0xBB};
  } else {
    // Q8_0: a float16 scale before 32 values.
    for (size_t at = 0; at < bytes.size(); at += 34)
      bytes[at + 1] = (bytes[at + 1] & std::byte{0x03}) | std::byte{0x20};
  }
  return bytes;
}

enum class Form : uint8_t { kInPlace, kInPanels };

bool CheckBatchInvariance(DataType type, Form form, std::mt19937& random) {
  const std::vector<std::byte> weights = RandomWeights(type, random);
  ThreadPool pool(1);
  Matrix matrix{weights.data(), type, kOut, kIn};
  std::vector<std::byte> panels;
  if (form == Form::kInPanels) {
    panels.resize(FloatPanelBytes(type, kOut, kIn));
    FillFloatPanels(pool, weights.data(), type, kOut, kIn, panels.data());
    matrix.panels = panels.data();
  }
  std::vector<float> x(kRows * kIn);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::ranges::generate(x, [&] { return uniform(random); });
  QuantizedActivations scratch;
  const auto compute = [&](int64_t first, int64_t rows, float* y) {
    const auto some = std::span(x).subspan(static_cast<size_t>(first * kIn), static_cast<size_t>(rows * kIn));
    MatMul(pool, {some, rows, scratch}, matrix, {y, static_cast<size_t>(rows * kOut)});
  };
  std::vector<float> alone(kRows * kOut);
  for (int64_t row = 0; row < kRows; ++row) compute(row, 1, alone.data() + row * kOut);
  std::vector<float> together(alone.size());
  for (const int64_t batch : std::array<int64_t, 8>{2, 3, 4, 7, 16, 24, 33, kRows}) {
    for (int64_t row = 0; row < kRows; row += batch) {
      compute(row, std::min(batch, kRows - row), together.data() + row * kOut);
    }
    if (std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

bool CheckBatchInvariance() {
  std::mt19937 random(1);
  return std::ranges::all_of(std::array{DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kQ8_0},
                             [&](DataType type) {
                               return CheckBatchInvariance(type, Form::kInPlace, random) &&
                                      (!IsFloat(type) || CheckBatchInvariance(type, Form::kInPanels, random));
                             });
}

}  // namespace quire::runner::kernels
