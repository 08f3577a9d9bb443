// Segments that came to or went from a disk tier, for a thread that waits for them. Any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "api/base/file_descriptor.h"
#include "server/tier/keys.h"

namespace quire::server {

class SegmentChanges {
 public:
  static constexpr size_t kMax = size_t{1} << 18;  // that wait; later ones are lost

  struct Change {
    SnapshotKey key{};
    bool stored = false;
  };

  // Does not wait.
  void Add(const SnapshotKey& key, bool stored) {
    const std::lock_guard lock(mutex_);
    if (changes_.size() >= kMax) return;
    changes_.push_back({key, stored});
    if (changes_.size() == 1) Wake();
  }

  // In their order.
  std::vector<Change> PopAll() {
    const std::lock_guard lock(mutex_);
    eventfd_t count = 0;
    ::eventfd_read(event_.get(), &count);
    return std::exchange(changes_, {});
  }

  // Readable while there are changes, and after Wake().
  int descriptor() const { return event_.get(); }
  void Wake() const { ::eventfd_write(event_.get(), 1); }

 private:
  const api::FileDescriptor event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::vector<Change> changes_;  // guarded by mutex_
};

}  // namespace quire::server
