// Dequantizers of the types whose elements are entries of codebooks or digits of three (dequantize.cc has the
// others).
#pragma once

#include "runner/weights/block_layouts.h"

namespace quire::runner::weights {

void DequantizeBlock(const BlockIQ1_S& block, float* to);
void DequantizeBlock(const BlockIQ1_M& block, float* to);
void DequantizeBlock(const BlockIQ2_XXS& block, float* to);
void DequantizeBlock(const BlockIQ2_XS& block, float* to);
void DequantizeBlock(const BlockIQ2_S& block, float* to);
void DequantizeBlock(const BlockIQ3_XXS& block, float* to);
void DequantizeBlock(const BlockIQ3_S& block, float* to);
void DequantizeBlock(const BlockTQ1_0& block, float* to);
void DequantizeBlock(const BlockTQ2_0& block, float* to);
void DequantizeBlock(const BlockNVFP4& block, float* to);

}  // namespace quire::runner::weights
