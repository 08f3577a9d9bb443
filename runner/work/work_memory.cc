#include "runner/work/work_memory.h"

#include <algorithm>
#include <utility>

namespace quire::runner {

WorkMemory::WorkMemory(size_t bytes_max)
    : outer_(std::exchange(work_memory, this)),
      bytes_max_(static_cast<int64_t>(std::min<size_t>(bytes_max, INT64_MAX))) {}

WorkMemory::~WorkMemory() { work_memory = outer_; }

WorkMemory::Exempt::Exempt() : scope_(std::exchange(work_memory, nullptr)) {}
WorkMemory::Exempt::~Exempt() { work_memory = scope_; }

bool MayAllocate(size_t bytes) {
  bool fits = true;
  for (WorkMemory* scope = work_memory; scope != nullptr; scope = scope->outer_) {
    const bool fits_here =
        bytes <= INT64_MAX && scope->bytes_ <= scope->bytes_max_ - static_cast<int64_t>(bytes);
    scope->exceeded_ |= !fits_here;
    fits &= fits_here;
  }
  return fits;
}

void CountAllocated(size_t bytes) {
  for (WorkMemory* scope = work_memory; scope != nullptr; scope = scope->outer_) {
    scope->bytes_ += static_cast<int64_t>(bytes);
    scope->peak_ = std::max(scope->peak_, scope->bytes_);
  }
}

void CountFreed(size_t bytes) {
  for (WorkMemory* scope = work_memory; scope != nullptr; scope = scope->outer_) {
    scope->bytes_ -= static_cast<int64_t>(bytes);
  }
}

}  // namespace quire::runner
