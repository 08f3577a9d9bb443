#include "server/snapshots_of_options.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

namespace quire::server {
namespace {

// Of the free space of a disk, for prefixes, where no size is set.
constexpr double kFreeSpaceShare = 0.1;

std::optional<RedisTier::Options> RedisOf(const Options& options) {
  if (!options.redis) return std::nullopt;
  RedisTier::Options redis{.address = *options.redis, .secret = HashOf(options.redis_secret)};
  redis.ttl = std::chrono::duration_cast<std::chrono::seconds>(
      std::max(options.redis_ttl, std::chrono::nanoseconds(0)));
  // For tests, as in the runner: whatever Redis has, and waiting for it.
  if (std::getenv("QUIRE_SNAPSHOT_ALWAYS_FETCH") != nullptr) {
    redis.lookup_time = std::chrono::seconds(60);
    redis.connect_time = std::chrono::seconds(20);
    redis.transfer_time = std::chrono::seconds(60);
  }
  return redis;
}

std::optional<KvPublisher::Options> EventsOf(const Options& options, const std::string& machine) {
  if (options.kv_events.empty()) return std::nullopt;
  return KvPublisher::Options{.endpoint = options.kv_events, .machine = machine};
}

}  // namespace

std::shared_ptr<SnapshotService> SnapshotsOf(const Options& options, const std::filesystem::path& runner,
                                             const std::string& machine) {
  if (options.snapshot_bytes == 0 && !options.snapshot_bytes_auto) return nullptr;
  DiskTier::Options tier{.folder = options.snapshot_folder, .budget_bytes = options.snapshot_bytes};
  if (options.snapshot_bytes_auto) tier.free_space_share = kFreeSpaceShare;
  if (!options.keys_file.empty()) tier.owners = SegmentIndex::Owners::kTenants;
  // For tests: when writing is tried again after a failure.
  if (const char* retry = std::getenv("QUIRE_SNAPSHOT_RETRY_MS"))
    tier.retry_after = std::chrono::milliseconds(std::atoi(retry));
  return std::make_shared<SnapshotService>(std::move(tier), runner, RedisOf(options),
                                           EventsOf(options, machine));
}

}  // namespace quire::server
