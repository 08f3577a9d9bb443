#include "runner/kernels/int8_gemm.h"

#include <algorithm>
#include <atomic>

namespace quire::runner::kernels {
namespace {

std::atomic<PanelTarget> limit = kNoPanelLimit;

PanelTarget MachineTarget() {
  if (Int8GemmAmx(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAmx;
  if (Int8GemmAvx512(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvx512;
  if (Int8GemmAvxVnni(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvxVnni;
  if (Int8GemmAvx2(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvx2;
  if (Int8GemmNeonI8mm(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kNeonI8mm;
  if (Int8GemmNeonDot(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kNeonDot;
  if (Int8GemmNeon(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kNeon;
  return PanelTarget::kPortable;
}

// Null where this machine cannot run it.
Int8Gemm* GemmWith(PanelTarget target, weights::DataType type) {
  switch (target) {
    case PanelTarget::kAmx:
      return Int8GemmAmx(type);
    case PanelTarget::kAvx512:
      return Int8GemmAvx512(type);
    case PanelTarget::kAvxVnni:
      return Int8GemmAvxVnni(type);
    case PanelTarget::kAvx2:
      return Int8GemmAvx2(type);
    case PanelTarget::kNeonI8mm:
      return Int8GemmNeonI8mm(type);
    case PanelTarget::kNeonDot:
      return Int8GemmNeonDot(type);
    case PanelTarget::kNeon:
      return Int8GemmNeon(type);
    case PanelTarget::kPortable:
    case PanelTarget::kNone:  // for models that were loaded before
      return Int8GemmPortable(type);
  }
  return nullptr;
}

}  // namespace

void LimitPanelTarget(PanelTarget best) { limit = best; }

PanelTarget PanelTargetLimit() { return limit.load(std::memory_order_relaxed); }

PanelTarget BestPanelTarget() {
  static const PanelTarget machine = MachineTarget();
  PanelTarget best = std::min(machine, PanelTargetLimit());
  // The limit may be one that this machine lacks.
  while (GemmWith(best, weights::DataType::kQ8_0) == nullptr) {
    best = static_cast<PanelTarget>(static_cast<uint8_t>(best) - 1);
  }
  return best;
}

size_t BestGroupRows() {  // 12: AVX-512's kRowsMax
  return BestPanelTarget() == PanelTarget::kAmx ? QuantizedActivations::kMaxGroupRows : 12;
}

Int8Gemm* BestInt8Gemm(weights::DataType type) { return GemmWith(BestPanelTarget(), type); }

}  // namespace quire::runner::kernels
