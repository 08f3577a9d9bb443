// The daemon's end of one runner's snapshot link (api/ipc/snapshot_link.h): a thread that reads and writes
// segments for that runner until its socket ends.
//
// The runner is not trusted: it names tokens, never keys or files, and all its keys begin with its model's
// files and settings. Its memory may change at any time and is copied before it is used. Memory:
// kSnapshotMemoryBytes, one piece, and the tokens of two prefixes. Writing keeps to a rate; reading does not
// wait for it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/ipc/snapshot_link.h"
#include "server/tier/disk_tier.h"
#include "server/tier/keys.h"
#include "server/tier/redis_tier.h"
#include "server/tier/write_rate.h"

namespace quire::server {

class TierSession {
 public:
  struct Opened {
    DiskTier* tier = nullptr;  // null: there is none, and the session ends
    std::string program = {};  // begins all keys, too
    RedisTier* redis = nullptr;
  };
  // Called, and waited for, on the session's thread.
  using TierSource = std::function<Opened()>;
  struct Settings {
    std::string model;     // for lists
    std::string identity;  // begins all keys
    double write_bytes_per_second = 64e6;
  };

  // `memory` is mapped here.
  TierSession(api::FileDescriptor socket, std::byte* memory, Settings settings, TierSource tier);
  ~TierSession();  // ends the link and the thread
  TierSession(const TierSession&) = delete;
  TierSession& operator=(const TierSession&) = delete;

  bool over() const { return over_; }

 private:
  using Clock = std::chrono::steady_clock;

  void Run();
  bool Handle(const api::ipc::SnapshotHeader& header, std::string_view text);
  bool Hello(const api::ipc::SnapshotHeader& header, std::string_view text);
  std::optional<KeyChain> ChainOf(const api::ipc::SnapshotHeader& header, size_t area,
                                  std::string_view isolation) const;
  PrefixOrigin OriginFor(std::string_view isolation) const;

  bool Find(const api::ipc::SnapshotHeader& header, std::string_view isolation);
  bool SendNext();
  std::unique_ptr<DiskTier::Reader> OpenPiece(const PrefixPiece& piece);
  bool EndFetch(api::ipc::SnapshotMessage message);

  bool Offer(const api::ipc::SnapshotHeader& header, std::string_view isolation);
  bool RequestPiece();
  bool Store(const api::ipc::SnapshotHeader& header);
  bool EndStore();
  void SendToRedis();

  bool Send(api::ipc::SnapshotHeader header);

  const api::FileDescriptor socket_;
  std::byte* const memory_;
  const Settings settings_;
  const WriteRate write_rate_;
  const TierSource source_;
  DiskTier* tier_ = nullptr;
  RedisTier* redis_ = nullptr;  // null: none
  std::string program_;
  std::optional<PrefixOrigin> origin_;  // after Hello; without a client

  uint64_t fetch_ = 0;  // generation; 0: none
  KeyChain fetch_chain_;
  KeyChain fetch_remote_;  // the same with the cluster's secret; without tokens where there is no Redis
  PrefixOrigin fetch_origin_;
  std::vector<PrefixPiece> fetching_;
  size_t fetch_at_ = 0;
  uint64_t fetch_offset_ = 0;
  std::unique_ptr<DiskTier::Reader> reader_;

  uint64_t store_ = 0;
  PrefixOrigin store_origin_;
  KeyChain store_chain_;
  std::vector<PrefixPiece> storing_;
  size_t store_at_ = 0;
  uint64_t store_offset_ = 0;
  std::unique_ptr<DiskTier::Writer> writer_;
  std::optional<Clock::time_point> request_at_;  // the next question, by the rate
  std::vector<char> buffer_;

  std::atomic<bool> over_ = false;
  std::thread thread_;  // last
};

}  // namespace quire::server
