#include "server/tier/eviction_order.h"

#include <algorithm>
#include <utility>

namespace quire::server {

void EvictionOrder::Add(const std::string& owner, const Segment& segment) noexcept {
  OwnedSegments& one = owners_[owner];
  one.segments.insert(RankOf(segment));
  one.bytes += segment.disk_bytes;
}

void EvictionOrder::Remove(const std::string& owner, const Segment& segment) {
  const auto found = owners_.find(owner);
  if (found == owners_.end() || found->second.segments.erase(RankOf(segment)) == 0) return;
  found->second.bytes -= segment.disk_bytes;
  if (found->second.segments.empty()) owners_.erase(found);
}

void EvictionOrder::Touch(const std::string& owner, const Segment& segment, uint64_t used_ns) {
  const auto found = owners_.find(owner);
  if (found == owners_.end()) return;
  auto place = found->second.segments.extract(RankOf(segment));
  if (place.empty()) return;
  std::get<0>(place.value()) = used_ns;
  found->second.segments.insert(std::move(place));
}

std::optional<SnapshotKey> EvictionOrder::Next(uint64_t now_ns, Scarce scarce) const {
  constexpr auto kSparedNs = static_cast<uint64_t>(std::chrono::nanoseconds(kSparedFor).count());
  const auto size_of = [scarce](const OwnedSegments& owner) {
    return scarce == Scarce::kBytes ? owner.bytes : uint64_t{owner.segments.size()};
  };
  const OwnedSegments* largest = nullptr;
  const Rank* oldest = nullptr;
  for (const auto& [name, owner] : owners_) {
    const Rank& first = *owner.segments.begin();
    if (oldest == nullptr || first < *oldest) oldest = &first;
    if (largest == nullptr || size_of(owner) > size_of(*largest)) largest = &owner;
  }
  if (oldest == nullptr) return std::nullopt;
  const bool is_spared = now_ns - std::min(std::get<0>(*oldest), now_ns) <= kSparedNs;
  return std::get<SnapshotKey>(is_spared ? *largest->segments.begin() : *oldest);
}

}  // namespace quire::server
