// Segments in Redis (or Valkey), which several machines share, beside a machine's own disk tier.
//
// Values are segment files (segment_file.h) whose keys and HMACs are made with the cluster's secret instead
// of the folder's. A segment that is fetched goes to the disk tier, as if it had been computed here, and is
// read from there. Segments that the disk tier got are sent by a thread of their own, read from disk, so that
// memory holds keys and one segment at most.
//
// Invariants
// - Nobody waits for a connection (redis_pool.h), nor for another's transfer, and for an answer no longer
//   than `lookup_time` and than what it can save is worth (kLookupTimePerToken): Redis down, slow or full is
//   a miss.
// - Bytes go to the disk tier only if HMAC, key, lengths and hash are right.
// Any thread but the I/O thread. The disk tier outlives it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/base/mutex.h"
#include "server/tier/disk_tier.h"
#include "server/tier/recent_keys.h"
#include "server/tier/redis_pool.h"

namespace quire::server {

struct RedisStats {
  bool connected = false;
  uint64_t lookups = 0;
  uint64_t late = 0;      // lookups without an answer in time
  uint64_t read = 0;      // segments
  uint64_t written = 0;   // segments
  uint64_t dropped = 0;   // segments not sent: too many waited, or the connection ended
  uint64_t corrupt = 0;   // values that were not what they should be
  uint64_t failures = 0;  // connections, and commands that Redis refused
};

class RedisTier {
 public:
  struct Options {
    RedisAddress address;
    SnapshotKey secret{};
    std::chrono::seconds ttl = std::chrono::hours(24);  // 0: none
    std::chrono::nanoseconds lookup_time = std::chrono::milliseconds(5);
    std::chrono::nanoseconds connect_time = std::chrono::milliseconds(50);
    std::chrono::nanoseconds retry_after = std::chrono::seconds(5);     // while it does not answer
    std::chrono::nanoseconds transfer_time = std::chrono::seconds(10);  // of one segment
  };
  RedisTier(Options options, DiskTier& disk);
  ~RedisTier();
  RedisTier(const RedisTier&) = delete;
  RedisTier& operator=(const RedisTier&) = delete;

  SnapshotKey RootOf(const PrefixOrigin& origin) const { return RootKey(options_.secret, origin); }

  struct Answer {
    std::vector<uint64_t> bytes;             // of each segment's value; 0: there is none
    std::vector<std::vector<int64_t>> ends;  // where segments end that begin behind each parent
  };
  // The wait for each token that is computed if there is no answer: about 1 % of its time where 1,000 are
  // computed in a second.
  static constexpr std::chrono::nanoseconds kLookupTimePerToken = std::chrono::microseconds(10);
  // `tokens`: that are computed without an answer. Nothing: no answer in time.
  std::optional<Answer> LookUp(const std::vector<SnapshotKey>& segments,
                               const std::vector<SnapshotKey>& parents, int64_t tokens = 0);
  // Into the disk tier, as the segment `local` with these tokens. False: it cannot be had.
  bool Download(const SnapshotKey& key, const StoredSegment& local, std::span<const int32_t> tokens,
                const PrefixOrigin* origin);

  struct Upload {
    SnapshotKey local{};  // key in the disk tier
    SnapshotKey key{};
    SnapshotKey parent{};
    int64_t to = 0;
    bool state = false;
  };
  // Sends them, unless Redis has them; one that it had within the last minutes is not asked about again, as
  // long as the connection lasts. Does not wait.
  void Send(const std::vector<Upload>& uploads);

  RedisStats stats() const;

 private:
  static constexpr size_t kUploadsMax = 4096;
  static constexpr size_t kSentMax = size_t{1} << 16;

  // Sends segments one by one, on a thread and a connection of its own. They wait while there is no
  // connection.
  class Sender {
   public:
    explicit Sender(RedisTier& tier);
    void Post(const Upload& upload);  // drops it where too many wait
    void Stop();

   private:
    void Run();
    bool Connect();

    RedisTier& tier_;
    api::Mutex mutex_;
    std::condition_variable wake_;
    std::deque<Upload> uploads_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
    RedisClient client_;  // of the thread
    std::thread thread_;  // last
  };

  void Count(uint64_t RedisStats::*counter);
  bool SendOne(RedisClient& client, const Upload& upload);
  bool SendValue(RedisClient& client, const Upload& upload, RedisClient::Time deadline);
  void RecordSent(const SnapshotKey& key);
  bool Store(const std::string& value, const SnapshotKey& key, const StoredSegment& local,
             std::span<const int32_t> tokens, const PrefixOrigin* origin);
  std::string ValueOf(const Upload& upload) const;

  const Options options_;
  DiskTier& disk_;
  mutable api::Mutex stats_mutex_;
  RedisStats stats_ GUARDED_BY(stats_mutex_);
  api::Mutex sent_mutex_;
  RecentKeys sent_ GUARDED_BY(sent_mutex_);  // that Redis has
  RedisPool pool_;
  Sender sender_;
};

}  // namespace quire::server
