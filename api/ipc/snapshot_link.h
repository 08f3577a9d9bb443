// Messages between a runner and the daemon's snapshot tier, over a socketpair of their own (SOCK_SEQPACKET)
// beside the runner link, and the memory that carries the bytes.
//
// A runner inherits the socket and, with the next number, a memory file of kMemoryBytes that both map. Its
// size is sealed. One fetch and one store are under way at once, so that each area has one writer at a time.
// The runner needs no system call that it does not need for its link, and no memory beyond this is taken.
//
//   runner                              tier
//   Hello {text: class of its bytes}
//   Find {tokens, matched, ...}    ->   Found {to, bytes} or Failed
//   Next                           ->   Bytes {segment, offset, bytes}, ..., End or Failed
//   Offer {tokens}                 ->   Wanted {segment, offset}, ..., Stored
//   Piece {bytes, total}           ->
//
// Neither side trusts the other: every field is checked; an unexpected message ends the link, and the tier
// with it, not the runner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace quire::api::ipc {

inline constexpr size_t kSnapshotPieceBytes = size_t{4} << 20;
inline constexpr size_t kSnapshotTokensMax = size_t{1} << 18;  // of a prefix; longer ones have no tier
inline constexpr size_t kSnapshotTextMax = 4096;

// Areas of the memory file, each written by one side while it has the turn.
inline constexpr size_t kFetchedArea = 0;
inline constexpr size_t kStoredArea = kSnapshotPieceBytes;
inline constexpr size_t kFindTokensArea = 2 * kSnapshotPieceBytes;
inline constexpr size_t kOfferTokensArea = kFindTokensArea + kSnapshotTokensMax * sizeof(int32_t);
inline constexpr size_t kSnapshotMemoryBytes = kOfferTokensArea + kSnapshotTokensMax * sizeof(int32_t);

enum class SnapshotMessage : uint32_t {
  kHello = 1,
  kFind,
  kNext,
  kCancelFetch,
  kOffer,
  kPiece,
  kCancelStore,
  kFound = 101,
  kBytes,
  kEnd,
  kFailed,
  kWanted,
  kStored,
};

// Begins every message; a text may follow. Answers carry the generation of the question; others are late, and
// ignored.
struct SnapshotHeader {
  static constexpr uint32_t kMagic = 0x31534E51;  // "QNS1"

  uint32_t magic = kMagic;
  SnapshotMessage type = SnapshotMessage::kHello;
  uint64_t generation = 0;
  int64_t from = 0;  // of a segment; kFind: tokens whose KV the runner has
  int64_t to = 0;    // of a segment, of what was found; kFind: tokens that it can restore
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t total = 0;   // of the segment
  uint32_t state = 0;   // 1: a state segment. kHello: prefixes need one
  uint32_t tokens = 0;  // in the tokens area. kHello: of a segment
};
static_assert(std::is_trivially_copyable_v<SnapshotHeader> && sizeof(SnapshotHeader) == 64);

}  // namespace quire::api::ipc
