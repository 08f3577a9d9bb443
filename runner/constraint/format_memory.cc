#include "runner/constraint/format_memory.h"

#include <algorithm>
#include <utility>

#include "runner/constraint/mask_table.h"
#include "runner/constraint/matcher.h"

namespace quire::runner::constraint {

bool FormatMemory::MayBegin(const std::string& party) const {
  const api::MutexLock lock(mutex_);
  const size_t left = bytes_max_ - std::min(bytes_max_, in_use_);
  const auto own = by_party_.find(party);
  return (own == by_party_.end() ? 0 : own->second) < left;
}

std::shared_ptr<Constraint> FormatMemory::Use(const std::string& party,
                                              std::shared_ptr<Constraint> constraint, size_t source_bytes) {
  Constraint* const used = constraint.get();
  const size_t bytes = used->grammar().bytes() + source_bytes;
  auto release = [memory = shared_from_this(), party, bytes,
                  constraint = std::move(constraint)](Constraint*) mutable {
    constraint.reset();
    memory->Release(party, bytes);
  };
  {
    const api::MutexLock lock(mutex_);
    by_party_[party] += bytes;
    in_use_ += bytes;
  }
  // Moved: a copy might have no memory, and nobody would give back what is counted.
  return std::shared_ptr<Constraint>(used, std::move(release));
}

void FormatMemory::Release(const std::string& party, size_t bytes) {
  const api::MutexLock lock(mutex_);
  in_use_ -= bytes;
  const auto own = by_party_.find(party);
  own->second -= bytes;
  if (own->second == 0) by_party_.erase(own);
}

size_t FormatMemory::in_use() const {
  const api::MutexLock lock(mutex_);
  return in_use_;
}

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
