// Prefixes on disk as JSON, for /quire/prefixes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "server/tier/disk_tier.h"
#include "server/tier/prefix_archive.h"

namespace quire::server {

std::string EncodePrefixes(const TierStats& stats, const std::vector<StoredPrefix>& prefixes,
                           uint64_t now_ns);
// `all`: also what it depends on.
std::string EncodePrefix(const StoredPrefix& prefix, uint64_t now_ns);
std::string EncodePruned(const Pruned& pruned);
std::string EncodeImported(const Imported& imported);

// Which prefixes to remove; what is given must all hold.
struct PruneRequest {
  std::vector<std::string> ids = {};
  std::string model = {};
  std::optional<int64_t> unused_seconds = {};
  bool all = false;
};
// Errors: an unknown member, or nothing that says which.
api::Result<PruneRequest> ParsePrune(std::string_view body);

// The prefix whose id begins so. kNotFound; kInvalidArgument: several do, or it is too short.
api::Result<SnapshotKey> FindPrefix(const std::vector<StoredPrefix>& prefixes, std::string_view id);
// kNotFound: an id has no prefix.
api::Result<std::vector<SnapshotKey>> SelectPrefixes(const std::vector<StoredPrefix>& prefixes,
                                                     const PruneRequest& request, uint64_t now_ns);

}  // namespace quire::server
