#include "server/snapshots_of_options.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "api/base/test_switch.h"
#include "server/exit_deadline.h"

namespace quire::server {
namespace {

// The share of the free space of a disk, for prefixes, where no size is set.
constexpr double kFreeSpaceShare = 0.1;
constexpr uint64_t kIndexPartOfReserve = 8;
constexpr std::chrono::milliseconds kEnd(200);  // beside what a runner waits for its tier

std::optional<RedisTier::Options> RedisOf(const Options& options) {
  if (!options.snapshot_redis) return std::nullopt;
  RedisTier::Options redis{.address = *options.snapshot_redis,
                           .secret = HashOf(options.snapshot_redis_secret)};
  // For tests, as in the runner: whatever Redis has, and waiting for it.
  if (api::TestSwitch("QUIRE_SNAPSHOT_ALWAYS_FETCH") != nullptr) {
    redis.lookup_time = std::chrono::seconds(60);
    redis.connect_time = std::chrono::seconds(20);
    redis.transfer_time = std::chrono::seconds(60);
  }
  return redis;
}

}  // namespace

std::shared_ptr<SnapshotService> SnapshotsOf(const Options& options, const std::filesystem::path& runner,
                                             int64_t reserve_bytes) {
  if (options.snapshot_bytes == 0 && !options.snapshot_bytes_auto) return nullptr;
  DiskTier::Options tier{.folder = options.snapshot_dir, .budget_bytes = options.snapshot_bytes};
  if (options.snapshot_bytes_auto) tier.free_space_share = kFreeSpaceShare;
  if (reserve_bytes > 0)
    tier.index_bytes = std::min(tier.index_bytes, static_cast<uint64_t>(reserve_bytes) / kIndexPartOfReserve);
  if (!options.keys_file.empty()) tier.owners = SegmentIndex::Owners::kTenants;
  // For tests: when writing is tried again after a failure.
  if (const char* retry = api::TestSwitch("QUIRE_SNAPSHOT_RETRY_MS"))
    tier.retry_after = std::chrono::milliseconds(std::atoi(retry));
  return std::make_shared<SnapshotService>(std::move(tier), runner, RedisOf(options));
}

void EndSnapshots(SnapshotService& snapshots) {
  if (snapshots.End(kEnd)) return;
  spdlog::warn("snapshot tier: it does not answer, and is left behind");
  ExitNow();
}

}  // namespace quire::server
