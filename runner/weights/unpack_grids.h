// UnpackBlock() of the types whose elements are entries of codebooks or digits of three (unpack.cc has the
// others). Their small scales are odd numbers, so that QuantFormat::scale_log2 takes what the formulas divide
// by.
#pragma once

#include "runner/weights/block_layouts.h"

namespace quire::runner::weights {

struct BlockQuants;

void UnpackBlock(const BlockIQ1_S& block, BlockQuants* to);
void UnpackBlock(const BlockIQ1_M& block, BlockQuants* to);
void UnpackBlock(const BlockIQ2_XXS& block, BlockQuants* to);
void UnpackBlock(const BlockIQ2_XS& block, BlockQuants* to);
void UnpackBlock(const BlockIQ2_S& block, BlockQuants* to);
void UnpackBlock(const BlockIQ3_XXS& block, BlockQuants* to);
void UnpackBlock(const BlockIQ3_S& block, BlockQuants* to);
void UnpackBlock(const BlockTQ1_0& block, BlockQuants* to);
void UnpackBlock(const BlockTQ2_0& block, BlockQuants* to);

}  // namespace quire::runner::weights
