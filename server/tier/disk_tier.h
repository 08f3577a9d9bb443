// Segments of prefixes in files of one folder, each found by its key (keys.h).
//
// A file is a header and the segment's bytes. The header has their hash, and a keyed hash of itself. A file is
// written under a temporary name and renamed when it is whole. What a crash, a full disk or a flipped bit leaves
// behind is no file of ours, or one whose hashes are wrong: it is removed and counted, and the prefix is computed.
//
// Invariants
// - Bytes leave Reader only for a file whose header was made with this folder's secret, for that key.
// - The bytes of the files that are known, and of those being written, never exceed the budget.
// - Two daemons may use one folder: names are equal only for equal content, and what one removes is a miss for the
//   other. Each counts the files that it knows.
// Any thread but the I/O thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"
#include "server/tier/keys.h"

namespace quire::server {

// What a file is, beside its bytes.
struct StoredSegment {
  SnapshotKey key{};
  SnapshotKey parent{};  // KeyChain::Prefix() of the tokens before the segment
  int64_t from = 0;
  int64_t to = 0;
  bool state = false;
  uint64_t bytes = 0;  // of the segment
  std::string model;   // for lists; at most 63 bytes are kept
};

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

class DiskTier {
 public:
  struct Options {
    std::filesystem::path folder;
    uint64_t budget_bytes = 0;
    std::chrono::nanoseconds retry_after = std::chrono::seconds(30);  // a failed write
    // For tests: errno for the coming call ("open", "write", "rename", "unlink"), 0 = none.
    std::function<int(const char* call)> fault = {};
  };
  // Creates the folder (0700) and its secret where they are missing, and reads every header. Files that are not
  // ours are removed if their names are. kInternal names the folder and the reason.
  static api::Result<std::unique_ptr<DiskTier>> Open(Options options);

  // The begin of chains for these bytes: two identities never share a key.
  SnapshotKey Root(std::string_view identity) const { return HmacOf(secret_, identity); }
  bool Has(const SnapshotKey& key) const;
  uint64_t BytesOf(const SnapshotKey& key) const;  // of the segment; 0 where there is none
  // Where token segments end that begin behind this prefix.
  std::vector<int64_t> EndsBehind(const SnapshotKey& parent) const;
  // They are used now. The segments of a prefix are used as one; the last ones are evicted first.
  void Touch(std::span<const SnapshotKey> keys);

  class Writer {
   public:
    ~Writer();
    // False: the tier is off, and the file gone.
    bool Write(std::span<const char> bytes);
    bool Commit();  // REQUIRES: as many bytes as said

   private:
    friend class DiskTier;
    Writer(DiskTier& tier, StoredSegment segment);
    DiskTier& tier_;
    StoredSegment segment_;
    std::filesystem::path path_;
    api::FileDescriptor fd_;
    SnapshotHash hash_;
    uint64_t written_ = 0;
    bool done_ = false;
  };
  // Null: there is one, or writing is off, or it does not fit.
  std::unique_ptr<Writer> Create(StoredSegment segment);

  class Reader {
   public:
    uint64_t bytes() const { return segment_.bytes; }
    // The next bytes, all of `out`. False: they cannot be read; the file is removed.
    bool Read(std::span<char> out);
    // After the last one: they are what was written. False: the file is removed.
    bool Verify();

   private:
    friend class DiskTier;
    Reader(DiskTier& tier, api::FileDescriptor fd) : tier_(tier), fd_(std::move(fd)) {}
    DiskTier& tier_;
    api::FileDescriptor fd_;
    StoredSegment segment_;
    SnapshotKey content_{};
    SnapshotHash hash_;
    uint64_t at_ = 0;
  };
  // Null: there is no such file, or it is not what it should be.
  std::unique_ptr<Reader> OpenSegment(const SnapshotKey& key);

  TierStats stats() const;
  void ForEach(const std::function<void(const StoredSegment&)>& visit) const;

 private:
  struct Entry {
    StoredSegment segment;
    uint64_t use = 0;
  };
  // Last use, then how far it reaches, then the key: the first is evicted first.
  using EvictionKey = std::tuple<uint64_t, int64_t, SnapshotKey>;

  explicit DiskTier(Options options) : options_(std::move(options)) {}
  api::Result<void> LoadSecret();
  void LoadFiles();
  int Fault(const char* call) const { return options_.fault ? options_.fault(call) : 0; }
  std::filesystem::path PathOf(const SnapshotKey& key) const;
  bool ReadHeader(int fd, StoredSegment& segment, SnapshotKey& content) const;
  std::string HeaderOf(const StoredSegment& segment, const SnapshotKey& content) const;
  bool Unlink(const std::filesystem::path& path) const;
  void Add(const StoredSegment& segment, uint64_t use);  // under mutex_
  void Drop(const SnapshotKey& key);                     // under mutex_
  bool MakeRoom(uint64_t bytes);                         // under mutex_
  void RemoveCorrupt(const SnapshotKey& key, const char* what);
  void WriteFailed(int error, const char* call);
  void WriteWorked();
  static EvictionKey OrderOf(const Entry& entry) { return {entry.use, -entry.segment.to, entry.segment.key}; }

  const Options options_;
  SnapshotKey secret_{};
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::unordered_map<SnapshotKey, Entry, SnapshotKeyHash> entries_;
  std::unordered_map<SnapshotKey, std::multiset<int64_t>, SnapshotKeyHash> ends_;  // by parent
  std::set<EvictionKey> order_;
  uint64_t reserved_ = 0;  // bytes of files being written
  uint64_t temporary_ = 0;
  std::optional<std::chrono::steady_clock::time_point> off_until_;
  TierStats stats_;
};

}  // namespace quire::server
