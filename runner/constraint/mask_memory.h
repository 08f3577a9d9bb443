// The memory of the masks of all compiled formats.
#pragma once

#include <cstddef>
#include <vector>

#include "api/base/mutex.h"

namespace quire::runner::constraint {

class MaskTable;

// Any thread, but for MakeRoom().
class MaskMemory {
 public:
  explicit MaskMemory(size_t bytes_max) : bytes_max_(bytes_max) {}

  void Add(MaskTable& table);
  void Remove(MaskTable& table);
  // Clears the largest tables until there is room for this many more bytes. On the thread of the matchers.
  void MakeRoom(size_t bytes);
  size_t bytes() const;

 private:
  size_t Sum() const REQUIRES(mutex_);

  const size_t bytes_max_;
  mutable api::Mutex mutex_;
  std::vector<MaskTable*> tables_ GUARDED_BY(mutex_);
};

}  // namespace quire::runner::constraint
