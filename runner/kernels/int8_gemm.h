// int8 GEMM: int8 activations times panels of quantized weights, one implementation per instruction set.
//
// The sum of a K block's 32 (or two times 16) products is an exact integer. It is converted to float32 and
// added to the output by one fused multiply-add with scale_w * scale_x, K block by K block in order; a min
// offset adds one fused multiply-add per K block. Outputs depend only on their row and weights and are
// bit-identical with every instruction set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runner/kernels/panels.h"
#include "runner/kernels/quantized_activations.h"

namespace quire::runner::kernels {

// weights::kCodebooks with the zero points of their types added.
inline constexpr auto kBiasedCodebooks = [] {
  std::array<std::array<uint8_t, 16>, std::size(weights::kCodebooks)> biased{};
  for (size_t i = 1; i < biased.size(); ++i) {
    const int zero_point = 1 << weights::ZeroPointLog2(static_cast<weights::Codebook>(i));
    for (size_t q = 0; q < 16; ++q)
      biased[i][q] = static_cast<uint8_t>(weights::kCodebooks[i][q] + zero_point);
  }
  return biased;
}();

// Some panels of a matrix [out, in] and the groups of rows to multiply with them.
struct GemmTask {
  const std::byte* panels = nullptr;  // from panel `first` on
  size_t first = 0;
  size_t out = 0, in = 0;
  size_t begin = 0, end = 0;  // panels
  const QuantizedActivations* rows = nullptr;
  size_t first_group = 0, last_group = 0;  // [first, last)
  float* y = nullptr;                      // [rows, out] of all rows
};

using Int8Gemm = void(const GemmTask& work);

// For a type that HasPanels(); null where this machine cannot run it.
Int8Gemm* Int8GemmAmx(weights::DataType type);  // AMX-INT8 beside AVX-512 VNNI; asks Linux for the tiles once
Int8Gemm* Int8GemmAvx512(weights::DataType type);    // AVX-512 VNNI
Int8Gemm* Int8GemmAvxVnni(weights::DataType type);   // AVX-VNNI beside these:
Int8Gemm* Int8GemmAvx2(weights::DataType type);      // AVX2, FMA, F16C
Int8Gemm* Int8GemmNeonI8mm(weights::DataType type);  // Arm: products of 2x8 bytes beside
Int8Gemm* Int8GemmNeonDot(weights::DataType type);   // dot products beside
Int8Gemm* Int8GemmNeon(weights::DataType type);      // what every Arm CPU of 64 bits has
Int8Gemm* Int8GemmPortable(weights::DataType type);

// Models that are loaded on kNone or kPortable have no panels: their products are float32. A machine has
// those of one family, so the last is no limit anywhere.
enum class PanelTarget : uint8_t {
  kNone,
  kPortable,
  kNeon,
  kNeonDot,
  kNeonI8mm,
  kAvx2,
  kAvxVnni,
  kAvx512,
  kAmx
};

// The fastest of this machine, or no better than the one that LimitPanelTarget asked for.
Int8Gemm* BestInt8Gemm(weights::DataType type);
PanelTarget BestPanelTarget();
// The rows of a full group of QuantizedActivations: those of its largest tile.
size_t BestGroupRows();

// For comparisons. Not while a product runs.
inline constexpr PanelTarget kNoPanelLimit = PanelTarget::kAmx;
void LimitPanelTarget(PanelTarget best);
PanelTarget PanelTargetLimit();

}  // namespace quire::runner::kernels
