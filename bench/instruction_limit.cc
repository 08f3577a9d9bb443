#include "bench/instruction_limit.h"

#include <hwy/targets.h>

namespace quire::bench {
namespace {

using runner::kernels::PanelTarget;

#if HWY_ARCH_X86
void LimitFloats(int64_t set) {
  hwy::SetSupportedTargetsForTest(set);
  hwy::GetChosenTarget().Update(set);
}
#endif

}  // namespace

bool LimitInstructions(PanelTarget target) {
  runner::kernels::LimitPanelTarget(target);
  if (runner::kernels::BestPanelTarget() != target) {
    runner::kernels::LimitPanelTarget(runner::kernels::kNoPanelLimit);
    return false;
  }
#if HWY_ARCH_X86
  // A machine without AVX-512 has none for floats either.
  if (target == PanelTarget::kAvx2 || target == PanelTarget::kAvxVnni) LimitFloats(HWY_AVX2);
  if (target == PanelTarget::kPortable) LimitFloats(HWY_SSE4);
#endif
  return true;
}

std::string PanelTargetName() {
  const PanelTarget best = runner::kernels::BestPanelTarget();
  for (const auto& [name, target] : kPanelTargets) {
    if (target == best) return name;
  }
  return "none";
}

}  // namespace quire::bench
