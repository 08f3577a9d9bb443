// Publishes what a disk tier has as KV events (kv_events.h): a block per whole token segment, and so per segment that a
// router can match against a prompt. What memory has is on disk, too, but for the seconds until it is written.
//
// A subscriber that comes, or comes back, gets AllBlocksCleared and then all blocks; so do the others, which changes nothing
// for them. One that missed messages, as their numbers show, subscribes again. Subscribers learn the tokens of all
// prompts. A thread of its own does all of it; it holds up nobody.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/tier/disk_tier.h"
#include "server/tier/event_socket.h"
#include "server/tier/kv_events.h"
#include "server/tier/segment_changes.h"

namespace quire::server {

// Since the start.
struct KvStats {
  bool bound = false;   // the address is used
  uint64_t stored = 0;  // events, and so below
  uint64_t removed = 0;
  uint64_t cleared = 0;
  uint64_t messages = 0;   // batches
  uint64_t refreshes = 0;  // times that all blocks were published, as a subscriber came
};

class KvPublisher {
 public:
  struct Options {
    std::string endpoint;  // of EventSocket
    std::string machine;   // in the topics
  };
  // `changes`: of the tier, since it was opened. An address that cannot be used is tried again every few seconds.
  KvPublisher(Options options, std::shared_ptr<SegmentChanges> changes, std::shared_ptr<DiskTier> tier);
  ~KvPublisher();
  KvPublisher(const KvPublisher&) = delete;
  KvPublisher& operator=(const KvPublisher&) = delete;

  // Any thread.
  KvStats stats() const;

 private:
  struct Known {
    const std::string* topic = nullptr;  // in topics_
    int64_t from = 0;
  };
  struct Block {
    std::string model;
    int64_t from = 0;
    BlockStored event;
  };

  void Run();
  void Bind();
  void Apply(const std::vector<SegmentChanges::Change>& changes);
  void PublishAll();
  std::optional<Block> Read(const SnapshotKey& key) const;
  void Add(const std::string& topic, KvEvent event);
  void Flush();
  std::atomic<uint64_t>& CounterOf(const KvEvent& event);

  const Options options_;
  const std::shared_ptr<SegmentChanges> changes_;
  const std::shared_ptr<DiskTier> tier_;
  // Of the thread:
  std::unique_ptr<EventSocket> socket_;  // null: it could not be bound
  bool reported_ = false;                // likewise, in the log
  std::set<std::string> topics_;
  std::unordered_map<SnapshotKey, Known, SnapshotKeyHash> known_;  // published, and not removed
  std::string topic_;                                              // of `events_`
  std::vector<KvEvent> events_;

  std::atomic<bool> bound_ = false;
  std::atomic<uint64_t> stored_ = 0, removed_ = 0, cleared_ = 0, sequence_ = 0, refreshes_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;  // last
};

}  // namespace quire::server
