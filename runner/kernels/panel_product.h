// Products of int8 activations with panels of quantised weights, one implementation per instruction set.
//
// The sum of a step's 32 (or two times 16) products is an exact whole number. It is turned into float32 and
// added to the output by one fused multiply-add with scale_w * scale_x, step by step in order; a minimum
// adds one fused multiply-add per step. So the bits of an output depend on its row and its weights alone, and
// are the same with every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runner/kernels/panels.h"
#include "runner/kernels/quantized_rows.h"
#include "runner/weights/tensor.h"

namespace quire::runner::kernels {

// What the codes of 4-bit types stand for, 128 added; by PanelFormat::Codes.
inline constexpr uint8_t kMovedCodes[3][16] = {
    {},
    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
    {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116},
};

// Some panels of a matrix [out, in] and the groups of rows that meet them.
struct PanelWork {
  const std::byte* panels = nullptr;  // of the whole matrix
  size_t out = 0, in = 0;
  size_t begin = 0, end = 0;  // panels
  const QuantizedRows* rows = nullptr;
  size_t first_group = 0, last_group = 0;  // [first, last)
  float* y = nullptr;                      // [rows, out] of all rows
};

using PanelProduct = void(const PanelWork& work);

// For a type that HasPanels(); null where this machine cannot run it.
PanelProduct* PanelProductAvx512(weights::DataType type);   // AVX-512 VNNI
PanelProduct* PanelProductAvxVnni(weights::DataType type);  // AVX-VNNI beside these:
PanelProduct* PanelProductAvx2(weights::DataType type);     // AVX2, FMA, F16C
PanelProduct* PanelProductPortable(weights::DataType type);

// Models that are loaded on kNone or kPortable have no panels: their products are float32.
enum class PanelTarget : uint8_t { kNone, kPortable, kAvx2, kAvxVnni, kAvx512 };

// The fastest of this machine, or no better than the one that LimitPanelTarget asked for.
PanelProduct* BestPanelProduct(weights::DataType type);
PanelTarget BestPanelTarget();

// For comparisons. Not while a product runs.
void LimitPanelTarget(PanelTarget best);

}  // namespace quire::runner::kernels
