// int8 GEMM: int8 activations times panels of quantized weights, one implementation per instruction set.
//
// The sum of a K block's 32 (or two times 16) products is an exact integer. It is converted to float32 and
// added to the output by one fused multiply-add with scale_w * scale_x, K block by K block in order; a min
// offset adds one fused multiply-add per K block. Outputs depend only on their row and weights and are
// bit-identical with every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/kernels/panels.h"
#include "runner/kernels/quantized_activations.h"
#include "runner/weights/tensor.h"

namespace quire::runner::kernels {

// Codebooks of the 4-bit types, biased by 128; by PanelFormat::Codes.
inline constexpr uint8_t kBiasedCodebook[3][16] = {
    {},
    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
    {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116},
};

// Some panels of a matrix [out, in] and the groups of rows to multiply with them.
struct GemmTask {
  const std::byte* panels = nullptr;  // of the whole matrix
  size_t out = 0, in = 0;
  size_t begin = 0, end = 0;  // panels
  const QuantizedActivations* rows = nullptr;
  size_t first_group = 0, last_group = 0;  // [first, last)
  float* y = nullptr;                      // [rows, out] of all rows
};

using Int8Gemm = void(const GemmTask& work);

// For a type that HasPanels(); null where this machine cannot run it.
Int8Gemm* Int8GemmAvx512(weights::DataType type);   // AVX-512 VNNI
Int8Gemm* Int8GemmAvxVnni(weights::DataType type);  // AVX-VNNI beside these:
Int8Gemm* Int8GemmAvx2(weights::DataType type);     // AVX2, FMA, F16C
Int8Gemm* Int8GemmPortable(weights::DataType type);

// Models that are loaded on kNone or kPortable have no panels: their products are float32.
enum class PanelTarget : uint8_t { kNone, kPortable, kAvx2, kAvxVnni, kAvx512 };

// The fastest of this machine, or no better than the one that LimitPanelTarget asked for.
Int8Gemm* BestInt8Gemm(weights::DataType type);
PanelTarget BestPanelTarget();

// For comparisons. Not while a product runs.
void LimitPanelTarget(PanelTarget best);

}  // namespace quire::runner::kernels
