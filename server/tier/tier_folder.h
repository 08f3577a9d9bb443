// A folder of prefixes: which files in it are ours, its secret, and what it has at a start.
//
// Ours are regular files of this user, under names that nothing else has: "<64 hex digits>.quire-prefix" and,
// while it is written, a name of api::UnfinishedFileName(). Whatever else is in the folder is neither read
// nor changed. Blocks; any thread but the I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/tier/keys.h"

namespace quire::server {

std::string SegmentFileName(const SnapshotKey& key);

// Creates the folder, and its secret where there is none. kInternal names the folder or the file, and the
// reason; what was created is removed then.
api::Result<SnapshotKey> OpenTierFolder(const std::filesystem::path& folder);

struct FoundSegment {
  uint64_t used_ns = 0;  // since 1970
  SnapshotKey key{};
};

// Names each file of a segment, without reading it, until `stop`. Removes what a killed process left
// unfinished.
void VisitSegments(const std::filesystem::path& folder, const std::stop_token& stop,
                   const std::function<void(const FoundSegment&)>& visit);

struct NewestSegments {
  std::vector<FoundSegment> segments;
  uint64_t surplus_ns = 0;  // there are others, and none of them was used later; 0: there are none
};
// The `count` segments that were used last. Holds no more, however many there are.
NewestSegments FindNewest(const std::filesystem::path& folder, const std::stop_token& stop, size_t count);

}  // namespace quire::server
