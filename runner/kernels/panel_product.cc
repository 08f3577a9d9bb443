#include "runner/kernels/panel_product.h"

#include <algorithm>
#include <atomic>

namespace quire::runner::kernels {
namespace {

std::atomic<PanelTarget> limit = PanelTarget::kAvx512;

PanelTarget MachineTarget() {
  if (PanelProductAvx512(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvx512;
  if (PanelProductAvxVnni(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvxVnni;
  if (PanelProductAvx2(weights::DataType::kQ8_0) != nullptr) return PanelTarget::kAvx2;
  return PanelTarget::kPortable;
}

}  // namespace

void LimitPanelTarget(PanelTarget best) { limit = best; }

PanelTarget BestPanelTarget() {
  static const PanelTarget machine = MachineTarget();
  return std::min(machine, limit.load(std::memory_order_relaxed));
}

PanelProduct* BestPanelProduct(weights::DataType type) {
  switch (BestPanelTarget()) {
    case PanelTarget::kAvx512:
      return PanelProductAvx512(type);
    case PanelTarget::kAvxVnni:
      return PanelProductAvxVnni(type);
    case PanelTarget::kAvx2:
      return PanelProductAvx2(type);
    case PanelTarget::kPortable:
    case PanelTarget::kNone:  // for models that were loaded before
      return PanelProductPortable(type);
  }
  return nullptr;
}

}  // namespace quire::runner::kernels
