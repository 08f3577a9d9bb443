// Named snapshots of llama.cpp's slots, in files of one private folder: they survive a restart. A file has the token
// ids of a snapshot; what was computed of them is in the prefix cache and its disk tier.
//
// Invariants
// - A file is whole or not there. One that is not what was written is removed, and there is no snapshot.
// - The folder's files have at most `bytes_max`. The tenant with most loses those that were saved first.
// Blocks. Any thread, one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "api/base/error.h"
#include "server/routes/slot_prefix.h"

namespace quire::server {

class SlotFiles {
 public:
  explicit SlotFiles(std::filesystem::path folder, uint64_t bytes_max = uint64_t{64} << 20)
      : folder_(std::move(folder)), bytes_max_(bytes_max) {}

  // Replaces the snapshot of this name. kTooLarge; kUnavailable names the call that failed.
  api::Result<void> Write(const SlotOwner& owner, const std::string& name, const SlotPrefix& prefix) const;
  std::optional<SlotPrefix> Read(const SlotOwner& owner, const std::string& name) const;

 private:
  std::filesystem::path PathOf(const SlotOwner& owner, const std::string& name) const;
  void MakeRoom(uint64_t bytes) const;

  const std::filesystem::path folder_;
  const uint64_t bytes_max_;
};

}  // namespace quire::server
