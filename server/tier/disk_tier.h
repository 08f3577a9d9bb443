// Segments of prefixes in files of one folder, each found by its key (keys.h).
//
// A file (segment_file.h) is written under a temporary name and renamed when it is whole. What a crash, a
// full disk or a flipped bit leaves behind is no file of ours, or one whose hashes are wrong: it is removed
// and counted, and the prefix is computed.
//
// Invariants
// - Bytes leave Reader only for a file whose header was made with this folder's secret, for that key.
// - What the files that are known take on the disk, and those being written, never exceed the budget; the
//   index of them never exceeds index_bytes.
// - Two daemons may use one folder: names are equal only for equal content, and what one removes is a miss
//   for the other. Each counts the files that it knows.
// - stats() never waits for a file: it reads what the last change of the files has published.
// Any thread but the I/O thread, which may call RootOf() and stats().
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "api/base/mutex.h"
#include "server/tier/keys.h"
#include "server/tier/segment_file.h"
#include "server/tier/segment_index.h"
#include "server/tier/tier_folder.h"

namespace quire::server {

struct TierStats {
  uint64_t budget_bytes = 0;
  uint64_t bytes = 0;
  uint64_t files = 0;
  uint64_t written = 0;    // files
  uint64_t read = 0;       // files, whole and right
  uint64_t evictions = 0;  // files
  uint64_t corrupt = 0;    // files that were not what they should be
  uint64_t failures = 0;   // system calls
  bool writing = true;     // false: off after a failure, until a later write succeeds
};

struct Pruned {
  uint64_t prefixes = 0;
  uint64_t files = 0;
  uint64_t bytes = 0;
};

class DiskTier {
 public:
  struct Options {
    std::filesystem::path folder;
    uint64_t budget_bytes = 0;
    // Above 0, instead of `budget_bytes`: the share of the disk's free space, its own files among that, that
    // they may have. It follows the free space, so that prefixes never fill a disk.
    double free_space_share = 0;
    uint64_t index_bytes = uint64_t{64} << 20;                 // of memory; what was used longest ago leaves
    SegmentIndex::Owners owners = SegmentIndex::Owners::kOne;  // among whom the room is shared
    // For tests: the free space without its own files.
    std::function<uint64_t()> free_bytes = {};
    std::chrono::nanoseconds retry_after = std::chrono::seconds(30);  // a failed write
    // Under the tier's lock, also with what the folder has at first: neither waits nor calls the tier.
    SegmentIndex::Observer on_change = {};
    // For tests: errno for the coming call ("open", "write", "rename", "unlink"), 0 = none.
    std::function<int(const char* call)> fault = {};
    std::stop_token stop = {};  // ends Open() and RemoveSurplus() early
  };
  // Creates the folder (0700) and its secret where they are missing, and reads the headers of its files
  // (tier_folder.h). Ours that are not what was written are removed. kInternal names the folder and the
  // reason.
  static api::Result<std::unique_ptr<DiskTier>> Open(Options options);

  // Removes the files that the index had no room for when it was opened, unless its stop comes before. Slow
  // where there are many.
  void RemoveSurplus();
  bool stopped() const { return options_.stop.stop_requested(); }

  // Where the chains of these prefixes begin in this folder: two origins never share a key.
  SnapshotKey RootOf(const PrefixOrigin& origin) const { return RootKey(secret_, origin); }
  bool Has(const SnapshotKey& key) const;
  uint64_t BytesOf(const SnapshotKey& key) const;  // of the segment; 0 where there is none
  // Where token segments end that begin behind this prefix.
  std::vector<int64_t> EndsBehind(const SnapshotKey& parent) const;
  // They are used now. The segments of a prefix are used as one; the last ones are evicted first.
  void Touch(std::span<const SnapshotKey> keys);
  // A prefix that ends with this segment was restored.
  void CountHit(const SnapshotKey& key);

  // As SegmentIndex has them.
  std::vector<StoredPrefix> Prefixes() const;
  std::optional<StoredPrefix> PrefixOf(const SnapshotKey& id) const;
  std::optional<PrefixOrigin> OriginOf(const SnapshotKey& id) const;
  std::vector<SnapshotKey> SegmentsOf(const SnapshotKey& id) const;
  // Removes these prefixes, but for the segments that others need.
  Pruned Prune(std::span<const SnapshotKey> ids);
  // Removes everything.
  Pruned PruneAll();

  class Writer {
   public:
    ~Writer();
    // False: the tier is off, and the file gone.
    bool Write(std::span<const char> bytes);
    // REQUIRES: as many bytes as said. With `content`, only if that is the hash of tokens and bytes.
    bool Commit(const SnapshotKey* content = nullptr);

   private:
    friend class DiskTier;
    Writer(DiskTier& tier, const StoredSegment& segment, const PrefixOrigin* origin);
    bool WriteBytes(std::span<const char> bytes);
    DiskTier& tier_;
    StoredSegment segment_;
    PrefixOrigin origin_;
    std::string origin_bytes_;
    std::filesystem::path path_;
    api::FileDescriptor fd_;
    api::Sha256 hash_;
    uint64_t written_ = 0;  // tokens and bytes
    bool done_ = false;
  };
  // Null: there is one, or writing is off, or it does not fit. `tokens`: those of a token segment, else none.
  // `origin`: for the first segment of a prefix, else null.
  std::unique_ptr<Writer> Create(StoredSegment segment, std::span<const int32_t> tokens,
                                 const PrefixOrigin* origin);

  class Reader {
   public:
    uint64_t bytes() const { return segment_.bytes; }
    const StoredSegment& segment() const { return segment_; }
    std::span<const int32_t> tokens() const { return tokens_; }
    const SnapshotKey& content() const { return content_; }
    const std::string& origin() const { return origin_; }  // EncodeOrigin()
    // The next bytes, all of `out`. False: they cannot be read; the file is removed.
    bool Read(std::span<char> out);
    // After the last one: they are what was written. False: the file is removed.
    bool Verify();

   private:
    friend class DiskTier;
    Reader(DiskTier& tier, api::FileDescriptor fd) : tier_(tier), fd_(std::move(fd)) {}
    bool Start(const SnapshotKey& key);
    DiskTier& tier_;
    api::FileDescriptor fd_;
    StoredSegment segment_;
    std::vector<int32_t> tokens_;
    std::string origin_;
    SnapshotKey content_{};
    api::Sha256 hash_;
    uint64_t at_ = 0;
  };
  // Null: there is no such file, or it is not what it should be.
  std::unique_ptr<Reader> OpenSegment(const SnapshotKey& key);

  // Any thread. As of the last change; the budget as of the last write, restored prefix or RefreshBudget().
  TierStats stats() const;
  // Asks the disk for its free space where the budget depends on it.
  uint64_t RefreshBudget();

 private:
  class Lock;
  class ReadLock;
  DiskTier(Options options, const SnapshotKey& secret)
      : options_(std::move(options)), secret_(secret), index_(options_.owners) {
    index_.SetObserver(options_.on_change);
  }
  void LoadFiles();
  struct FoundFile {
    StoredSegment segment;
    std::optional<PrefixOrigin> origin;
    uint64_t used_ns = 0;
    uint64_t disk_bytes = 0;
  };
  std::optional<FoundFile> ReadFile(const FoundSegment& found) REQUIRES(mutex_);
  int Fault(const char* call) const { return options_.fault ? options_.fault(call) : 0; }
  std::filesystem::path PathOf(const SnapshotKey& key) const;
  bool Unlink(const std::filesystem::path& path) const;
  uint64_t BudgetNow() const REQUIRES(mutex_);
  bool Evict(EvictionOrder::Scarce scarce) REQUIRES(mutex_);  // false: there is nothing
  bool MakeRoom(uint64_t bytes) REQUIRES(mutex_);
  void Remove(const SnapshotKey& key, Pruned& pruned) REQUIRES(mutex_);
  void RemoveCorrupt(const SnapshotKey& key, const char* what);
  void WriteFailed(int error, const char* call);
  void WriteWorked() REQUIRES(mutex_);

  const Options options_;
  const SnapshotKey secret_;
  uint64_t surplus_ns_ = 0;   // NewestSegments
  mutable api::Mutex mutex_;  // held while files are removed: whoever waits for it waits for the disk
  SegmentIndex index_ GUARDED_BY(mutex_);
  uint64_t reserved_ GUARDED_BY(mutex_) = 0;  // bytes of files being written
  std::optional<std::chrono::steady_clock::time_point> off_until_ GUARDED_BY(mutex_);
  TierStats stats_ GUARDED_BY(mutex_);

  mutable api::Mutex published_mutex_;  // no system call is made under it
  TierStats published_ GUARDED_BY(published_mutex_);
};

}  // namespace quire::server
