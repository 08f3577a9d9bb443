#include "server/tier/eviction_order.h"

#include <algorithm>

namespace quire::server {

void EvictionOrder::Add(const std::string& owner, const Segment& segment) {
  Owner& one = owners_[owner];
  one.segments.insert(RankOf(segment));
  one.bytes += segment.file_bytes;
}

void EvictionOrder::Remove(const std::string& owner, const Segment& segment) {
  const auto found = owners_.find(owner);
  found->second.segments.erase(RankOf(segment));
  found->second.bytes -= segment.file_bytes;
  if (found->second.segments.empty()) owners_.erase(found);
}

std::optional<SnapshotKey> EvictionOrder::Next(uint64_t now_ns) const {
  constexpr auto kSparedNs = static_cast<uint64_t>(std::chrono::nanoseconds(kSparedFor).count());
  const Owner* largest = nullptr;
  const Rank* oldest = nullptr;
  for (const auto& [name, owner] : owners_) {
    const Rank& first = *owner.segments.begin();
    if (oldest == nullptr || first < *oldest) oldest = &first;
    if (largest == nullptr || owner.bytes > largest->bytes) largest = &owner;
  }
  if (oldest == nullptr) return std::nullopt;
  const bool is_spared = now_ns - std::min(std::get<0>(*oldest), now_ns) <= kSparedNs;
  return std::get<SnapshotKey>(is_spared ? *largest->segments.begin() : *oldest);
}

}  // namespace quire::server
