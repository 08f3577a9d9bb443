// Products with panels by AMX tiles, on a model of the tile instructions: what int8_gemm_amx.inl does can be
// tested on processors without them.
#pragma once

#include "runner/kernels/int8_gemm.h"

namespace quire::runner::kernels::test {

// For a type that HasPanels(); null on a machine without AVX-512 VNNI, which converts the sums.
Int8Gemm* Int8GemmAmxModel(weights::DataType type);

}  // namespace quire::runner::kernels::test
