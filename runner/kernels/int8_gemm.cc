#include "runner/kernels/int8_gemm.h"

#include <algorithm>
#include <atomic>

namespace quire::runner::kernels {
namespace {

std::atomic<PanelTarget> limit = PanelTarget::kAvx512;

PanelTarget MachineTarget() {
  if (Int8GemmAvx512(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvx512;
  if (Int8GemmAvxVnni(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvxVnni;
  if (Int8GemmAvx2(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvx2;
  return PanelTarget::kPortable;
}

}  // namespace

void LimitPanelTarget(PanelTarget best) { limit = best; }

PanelTarget BestPanelTarget() {
  static const PanelTarget machine = MachineTarget();
  return std::min(machine, limit.load(std::memory_order_relaxed));
}

Int8Gemm* BestInt8Gemm(weights::DataType type) {
  switch (BestPanelTarget()) {
    case PanelTarget::kAvx512:
      return Int8GemmAvx512(type);
    case PanelTarget::kAvxVnni:
      return Int8GemmAvxVnni(type);
    case PanelTarget::kAvx2:
      return Int8GemmAvx2(type);
    case PanelTarget::kPortable:
    case PanelTarget::kNone:  // for models that were loaded before
      return Int8GemmPortable(type);
  }
  return nullptr;
}

}  // namespace quire::runner::kernels
