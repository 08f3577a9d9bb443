// Which segment a full tier evicts next.
//
// The owner with most bytes makes room, so that one who fills the tier evicts segments of its own; where
// segments are too many, the owner with most of them. What nobody has used for kSparedFor leaves before,
// whoever has it. An owner's segments leave in the order of their last use, and, of those used together, the
// ends of prefixes first. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "server/tier/keys.h"

namespace quire::server {

class EvictionOrder {
 public:
  static constexpr std::chrono::hours kSparedFor{24};

  enum class Scarce : uint8_t { kBytes, kSegments };
  struct Segment {
    SnapshotKey key{};
    int64_t to = 0;        // tokens of its prefix up to its end
    uint64_t used_ns = 0;  // since 1970
    uint64_t disk_bytes = 0;
  };
  void Add(const std::string& owner, const Segment& segment) noexcept;
  // The same that was added; else nothing happens. They need no memory.
  void Remove(const std::string& owner, const Segment& segment);
  void Touch(const std::string& owner, const Segment& segment, uint64_t used_ns);
  // Linear in the owners. Nothing: there is none.
  std::optional<SnapshotKey> Next(uint64_t now_ns, Scarce scarce = Scarce::kBytes) const;

 private:
  using Rank = std::tuple<uint64_t, int64_t, SnapshotKey>;
  struct OwnedSegments {
    std::set<Rank> segments;
    uint64_t bytes = 0;
  };
  static Rank RankOf(const Segment& segment) { return {segment.used_ns, -segment.to, segment.key}; }

  std::map<std::string, OwnedSegments> owners_;  // each has a segment
};

}  // namespace quire::server
