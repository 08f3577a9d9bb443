// Names of stored prefixes: a chain of hashes over the tokens, begun by what the bytes depend on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/sha256.h"

namespace quire::server {

using SnapshotKey = api::Sha256::Digest;

struct SnapshotKeyHash {
  size_t operator()(const SnapshotKey& key) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(key.data()), key.size()});
  }
};

SnapshotKey HmacOf(const SnapshotKey& secret, std::string_view text);
SnapshotKey HashOf(std::string_view text);
std::string HexOf(const SnapshotKey& key);
// The name of what ends a prefix: its last token segment, or the state behind it. `prefix`:
// KeyChain::Prefix().
SnapshotKey ObjectKey(const SnapshotKey& prefix, bool state);

// A segment of a prefix, as cache::SegmentsOf() has them.
struct PrefixPiece {
  int64_t from = 0, to = 0;
  bool state = false;
  SnapshotKey key{};
  // What StoredSegment::parent is a hash of.
  int64_t begin() const { return state ? to : from; }
};

// H(0) = HMAC(secret, root, isolation); H(i) = SHA-256(H(i - 1), tokens of segment i). A prefix that ends
// inside a segment is H of the segments before it and the tokens of its part. Two kinds of one prefix have
// keys of their own. Holds the tokens.
class KeyChain {
 public:
  KeyChain() = default;
  KeyChain(const SnapshotKey& begin, std::vector<int32_t> tokens, int64_t segment_tokens);

  // The same tokens behind another root.
  KeyChain WithRoot(const SnapshotKey& root) const { return {root, tokens_, segment_tokens_}; }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t segment_tokens() const { return segment_tokens_; }
  // The key of the prefix [0, to), 0 <= to <= tokens().
  SnapshotKey Prefix(int64_t to) const;
  SnapshotKey Object(int64_t to, bool state) const { return ObjectKey(Prefix(to), state); }
  std::span<const int32_t> Tokens(int64_t from, int64_t to) const {
    return std::span(tokens_).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
  }
  // The segments of the prefix [0, to) from `from` on, which is where one begins.
  std::vector<PrefixPiece> Pieces(int64_t from, int64_t to, bool needs_state) const;

 private:
  std::string_view BytesOf(int64_t from, int64_t to) const;

  std::vector<int32_t> tokens_;
  int64_t segment_tokens_ = 1;
  std::vector<SnapshotKey> whole_;  // H(i)
};

}  // namespace quire::server
