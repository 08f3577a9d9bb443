// The memory of compiled formats that requests use, from their preparation to their end.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/base/mutex.h"

namespace quire::runner::constraint {

class Constraint;
class MaskTable;

// Counts grammars in use, by the party whose request used them first. Any thread.
class FormatMemory : public std::enable_shared_from_this<FormatMemory> {
 public:
  explicit FormatMemory(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Whether a request of the party may begin to use a further format: the party uses less than what is left.
  // So one party never has all of it, and whoever uses nothing finds something left. REQUIRES for an end of
  // waiting: what is in use is given back without a further format.
  bool MayBegin(const std::string& party) const;

  // The constraint, counted with its source until nobody holds the result any more.
  std::shared_ptr<Constraint> Use(const std::string& party, std::shared_ptr<Constraint> constraint,
                                  size_t source_bytes);

  size_t bytes_max() const { return bytes_max_; }
  size_t in_use() const;

 private:
  void Release(const std::string& party, size_t bytes);

  const size_t bytes_max_;
  mutable api::Mutex mutex_;
  size_t in_use_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, size_t> by_party_ GUARDED_BY(mutex_);
};

// The masks of all formats together. Any thread, but for MakeRoom().
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
