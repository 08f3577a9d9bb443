// Named snapshots of llama.cpp's slots, in files of one private folder: they survive a restart. A file has
// the token ids of a snapshot; what was computed of them is in the prefix cache and its disk tier.
//
// Invariants
// - A file is whole or not there: a write that fails leaves the snapshot that was there. One that was read
//   whole and is not what was written is removed, and there is no snapshot; one that cannot be read now
//   stays.
// - The folder's files have at most `bytes_max`, and one more that is being written; a file counts as
//   `file_bytes_min` at least, as each of them is looked at when one is saved. The tenant with most loses
//   those that were saved first.
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
  explicit SlotFiles(std::filesystem::path folder, uint64_t bytes_max = uint64_t{64} << 20,
                     uint64_t file_bytes_min = uint64_t{16} << 10)
      : folder_(std::move(folder)), bytes_max_(bytes_max), file_bytes_min_(file_bytes_min) {}

  // Replaces the snapshot of this name. kTooLarge; kUnavailable names the call that failed.
  api::Result<void> Write(const SlotOwner& owner, const std::string& name, const SlotPrefix& prefix) const;
  // Nothing: there is no such snapshot. kUnavailable names the call that failed.
  api::Result<std::optional<SlotPrefix>> Read(const SlotOwner& owner, const std::string& name) const;

 private:
  std::filesystem::path PathOf(const SlotOwner& owner, const std::string& name) const;
  // For the file at `place`, which has or will have these bytes.
  void MakeRoom(const std::filesystem::path& place, uint64_t bytes) const;

  const std::filesystem::path folder_;
  const uint64_t bytes_max_;
  const uint64_t file_bytes_min_;
};

}  // namespace quire::server
