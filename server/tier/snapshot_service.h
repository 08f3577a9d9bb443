// The daemon's snapshot tier: a folder and one session per runner.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/snapshot_tier.h"
#include "server/tier/disk_tier.h"
#include "server/tier/redis_tier.h"
#include "server/tier/tier_session.h"

namespace quire::server {

// I/O thread only, but for what its sessions do.
class SnapshotService : public scheduler::SnapshotTier {
 public:
  // Touches nothing before Begin(): a start that is refused leaves no folder behind.
  // `redis`: the folder's segments are shared through it, too.
  SnapshotService(DiskTier::Options options, std::filesystem::path runner,
                  std::optional<RedisTier::Options> redis = {});
  ~SnapshotService() override;

  // Reads the folder, and the runner's program, on a thread of its own: another program may compute other
  // bytes. Once.
  void Begin();
  // Ends its threads. False: one of them still waits for a disk or for Redis, and goes on until the process
  // ends. Once, and nothing else but the destructor after it.
  bool End(std::chrono::nanoseconds limit);
  std::optional<Ends> Connect(const std::string& model, const std::string& identity) override;
  // Nothing while the folder is being read, and when it cannot be used.
  std::optional<TierStats> stats() const;
  std::optional<RedisStats> redis_stats() const;
  struct Opened {
    std::shared_ptr<DiskTier> tier;
    std::string program;  // PrefixOrigin::program of what this daemon's runners compute
  };
  bool ready() const { return loaded() != nullptr; }  // the folder was read, or it cannot be used
  // kUnavailable: likewise.
  api::Result<Opened> opened() const { return OpenedIn(loaded_); }
  // The same, to be asked on any thread.
  using FindTier = std::function<api::Result<std::shared_ptr<DiskTier>>()>;
  FindTier tier() const;

 private:
  struct Loaded {
    std::shared_ptr<DiskTier> tier;
    std::string program;               // its hash
    std::unique_ptr<RedisTier> redis;  // null: none
  };
  struct Settings {
    DiskTier::Options disk;
    std::filesystem::path runner;
    std::optional<RedisTier::Options> redis;
  };
  using Future = std::shared_future<std::shared_ptr<const Loaded>>;
  static std::shared_ptr<const Loaded> Load(Settings settings);
  static const Loaded* ReadyIn(const Future& loaded);  // null: not yet
  static api::Result<Opened> OpenedIn(const Future& loaded);
  const Loaded* loaded() const { return ReadyIn(loaded_); }

  Settings settings_;
  std::promise<std::shared_ptr<const Loaded>> promise_;
  Future loaded_{promise_.get_future()};
  std::jthread reader_;
  std::vector<std::unique_ptr<TierSession>> sessions_;
};

}  // namespace quire::server
