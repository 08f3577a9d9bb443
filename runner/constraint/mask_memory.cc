#include "runner/constraint/mask_memory.h"

#include <algorithm>

#include "runner/constraint/mask_table.h"

namespace quire::runner::constraint {

void MaskMemory::Add(MaskTable& table) {
  const api::MutexLock lock(mutex_);
  tables_.push_back(&table);
}

void MaskMemory::Remove(MaskTable& table) {
  const api::MutexLock lock(mutex_);
  std::erase(tables_, &table);
}

void MaskMemory::MakeRoom(size_t bytes) {
  const api::MutexLock lock(mutex_);
  while (Sum() + bytes > bytes_max_) {
    const auto largest =
        std::ranges::max_element(tables_, {}, [](const MaskTable* table) { return table->bytes(); });
    if (largest == tables_.end() || (*largest)->bytes() == 0) return;
    (*largest)->Clear();
  }
}

size_t MaskMemory::bytes() const {
  const api::MutexLock lock(mutex_);
  return Sum();
}

size_t MaskMemory::Sum() const {
  size_t bytes = 0;
  for (const MaskTable* table : tables_) bytes += table->bytes();
  return bytes;
}

}  // namespace quire::runner::constraint
