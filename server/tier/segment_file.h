// A segment of a prefix as a file: a header, what the prefix depends on (in its first segment only), the
// segment's tokens, and the bytes of the caches.
//
// The header has a hash of tokens and bytes, and a keyed hash of itself and of what follows it up to the
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/tier/keys.h"

namespace quire::server {

// All that the bytes of a prefix depend on beside its tokens, and whose it is.
struct PrefixOrigin {
  std::string model = {};       // its name; for lists, not part of any key
  std::string program = {};     // hash of the runner's program
  std::string files = {};       // the model's files and how they are read
  std::string byte_class = {};  // caches and machine, as the runner names them
  std::string isolation = {};   // api::Client::IsolationKey()
  int64_t segment_tokens = 0;
  bool needs_state = false;
};

std::string EncodeOrigin(const PrefixOrigin& origin);
// Nothing: it is not what EncodeOrigin() writes.
std::optional<PrefixOrigin> ParseOrigin(std::string_view bytes);

// Where its chains of keys begin (KeyChain), for a folder with this secret.
SnapshotKey RootKey(const SnapshotKey& secret, const PrefixOrigin& origin);

struct StoredSegment {
  SnapshotKey key{};
  SnapshotKey parent{};  // KeyChain::Prefix() of the tokens before the segment
  int64_t from = 0;
  int64_t to = 0;
  bool state = false;
  uint64_t bytes = 0;         // of the caches
  uint64_t origin_bytes = 0;  // 0 behind the first segment

  uint64_t token_bytes() const { return static_cast<uint64_t>(to - from) * sizeof(int32_t); }
  uint64_t file_bytes() const;
  static constexpr uint64_t kBlockBytes = 4096;
  static constexpr uint64_t kBytesMax = uint64_t{1} << 48;  // of the caches; no larger one is added up
  uint64_t disk_bytes() const;                              // what its file takes at least: whole blocks
  bool begins_prefix() const { return from == 0 && !state; }
};

struct SegmentHead {
  StoredSegment segment;
  SnapshotKey content{};  // hash of tokens and bytes
  std::string origin = {};
};

// Where the tokens begin, and with them everything that `content` is a hash of.
uint64_t ContentOffset(const StoredSegment& segment);
std::string EncodeHead(const SegmentHead& head, const SnapshotKey& secret);

enum class HeadState : uint8_t { kValid, kOtherVersion, kCorrupt };
// kValid: the file has the size that its header says.
HeadState ReadHead(int fd, const SnapshotKey& secret, SegmentHead& head);

// The same for a file in memory.
HeadState ParseHead(std::string_view file, const SnapshotKey& secret, SegmentHead& head);

// All bytes at this offset, or false.
bool ReadAll(int fd, char* out, size_t bytes, uint64_t offset);
bool WriteAll(int fd, const char* data, size_t bytes, uint64_t offset);

}  // namespace quire::server
