// Measuring as if on a machine with fewer instructions.
#pragma once

#include <map>
#include <string>

#include "runner/kernels/int8_gemm.h"

namespace quire::bench {

// What --target may name.
inline const std::map<std::string, runner::kernels::PanelTarget> kPanelTargets = {
    {"amx", runner::kernels::PanelTarget::kAmx},
    {"avx512", runner::kernels::PanelTarget::kAvx512},
    {"avxvnni", runner::kernels::PanelTarget::kAvxVnni},
    {"avx2", runner::kernels::PanelTarget::kAvx2},
    {"i8mm", runner::kernels::PanelTarget::kNeonI8mm},
    {"dotprod", runner::kernels::PanelTarget::kNeonDot},
    {"neon", runner::kernels::PanelTarget::kNeon},
    {"portable", runner::kernels::PanelTarget::kPortable}};

// Limits the kernels of this process, those of floats too: with kAvx2 and kAvxVnni to AVX2, with kPortable to
// SSE4. False, and nothing is limited: this machine does not have `target`, so what is measured would be
// something else.
bool LimitInstructions(runner::kernels::PanelTarget target);

// The name of what int8 products use now, as kPanelTargets has it.
std::string PanelTargetName();

}  // namespace quire::bench
