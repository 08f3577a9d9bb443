#include "server/tier/segment_index.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "server/tier/isolation_key.h"

namespace quire::server {

void SegmentIndex::Add(const StoredSegment& segment, const PrefixOrigin* origin, uint64_t used_ns,
                       uint64_t disk_bytes) noexcept {
  Drop(segment.key);
  Entry added{
      .segment = segment, .used_ns = used_ns, .disk_bytes = std::max(segment.disk_bytes(), disk_bytes)};
  if (!segment.begins_prefix()) added.before = ObjectKey(segment.parent, false);
  added.owner = OwnerOf(added, origin);
  order_.Add(added.owner, OrderOf(added));
  const Entry& entry = entries_.emplace(segment.key, added).first->second;
  if (!segment.state) ends_[segment.parent].insert(segment.to);
  if (!segment.begins_prefix()) ++followers_[entry.before];
  if (segment.begins_prefix() && origin != nullptr) {
    OriginUse& use = origins_[segment.parent];
    if (use.segments++ == 0) {
      use.origin = *origin;
      use.bytes = sizeof(OriginUse) + EncodeOrigin(*origin).size();
      origin_bytes_ += use.bytes;
    }
  }
  bytes_ += entry.disk_bytes;
  if (observer_) observer_(segment.key, true);
}

bool SegmentIndex::Drop(const SnapshotKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  const StoredSegment& segment = found->second.segment;
  order_.Remove(found->second.owner, OrderOf(found->second));
  if (const auto ends = ends_.find(segment.parent); !segment.state && ends != ends_.end()) {
    if (const auto end = ends->second.find(segment.to); end != ends->second.end()) ends->second.erase(end);
    if (ends->second.empty()) ends_.erase(ends);
  }
  if (!segment.begins_prefix()) {
    const auto before = followers_.find(found->second.before);
    if (before != followers_.end() && --before->second == 0) followers_.erase(before);
  } else if (const auto origin = origins_.find(segment.parent); origin != origins_.end()) {
    if (--origin->second.segments == 0) {
      origin_bytes_ -= origin->second.bytes;
      origins_.erase(origin);
    }
  }
  bytes_ -= found->second.disk_bytes;
  const SnapshotKey dropped = segment.key;
  entries_.erase(found);
  if (observer_) observer_(dropped, false);
  return true;
}

const SegmentIndex::Entry* SegmentIndex::Find(const SnapshotKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<int64_t> SegmentIndex::EndsBehind(const SnapshotKey& parent) const {
  const auto found = ends_.find(parent);
  if (found == ends_.end()) return {};
  std::vector<int64_t> ends(found->second.begin(), found->second.end());
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  return ends;
}

void SegmentIndex::Touch(const SnapshotKey& key, uint64_t used_ns) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  order_.Touch(entry.owner, OrderOf(entry), used_ns);
  entry.used_ns = used_ns;
  if (entry.segment.begins_prefix()) return;
  std::string owner = OwnerOf(entry, nullptr);  // what it follows may have come later
  if (owner == entry.owner) return;
  order_.Add(owner, OrderOf(entry));
  order_.Remove(entry.owner, OrderOf(entry));
  entry.owner = std::move(owner);
}

std::string SegmentIndex::OwnerOf(const Entry& entry, const PrefixOrigin* origin) const {
  if (owners_ == Owners::kOne) return {};
  if (origin != nullptr) return std::string(TenantIn(origin->isolation).value_or(""));
  const Entry* before = Find(entry.before);
  return before == nullptr ? std::string() : before->owner;
}

void SegmentIndex::CountHit(const SnapshotKey& key) {
  if (const auto found = entries_.find(key); found != entries_.end()) ++found->second.hits;
}

uint64_t SegmentIndex::Followers(const SnapshotKey& key) const {
  const auto found = followers_.find(key);
  return found == followers_.end() ? 0 : found->second;
}

std::vector<SnapshotKey> SegmentIndex::SegmentsOf(const SnapshotKey& id) const {
  std::vector<SnapshotKey> keys;
  const Entry* entry = Find(id);
  for (; entry != nullptr; entry = Find(entry->before)) {
    keys.push_back(entry->segment.key);
    if (!entry->segment.begins_prefix()) continue;
    std::ranges::reverse(keys);
    return keys;
  }
  return {};
}

const PrefixOrigin* SegmentIndex::OriginBehind(const std::vector<SnapshotKey>& segments) const {
  if (segments.empty()) return nullptr;
  const auto found = origins_.find(Find(segments.front())->segment.parent);
  return found == origins_.end() ? nullptr : &found->second.origin;
}

const PrefixOrigin* SegmentIndex::OriginOf(const SnapshotKey& id) const {
  return OriginBehind(SegmentsOf(id));
}

std::optional<StoredPrefix> SegmentIndex::PrefixOf(const SnapshotKey& id) const {
  const std::vector<SnapshotKey> keys = SegmentsOf(id);
  const PrefixOrigin* origin = OriginBehind(keys);
  if (origin == nullptr) return std::nullopt;
  const Entry& last = *Find(id);
  if (origin->needs_state != last.segment.state) return std::nullopt;
  StoredPrefix prefix{.id = id,
                      .origin = *origin,
                      .tokens = last.segment.to,
                      .segments = keys.size(),
                      .hits = last.hits,
                      .used_ns = last.used_ns};
  for (const SnapshotKey& key : keys) prefix.bytes += Find(key)->disk_bytes;
  return prefix;
}

std::vector<StoredPrefix> SegmentIndex::Prefixes() const {
  std::vector<StoredPrefix> prefixes;
  for (const auto& [key, entry] : entries_) {
    if (!entry.segment.state && Followers(key) > 0) continue;
    if (auto prefix = PrefixOf(key)) prefixes.push_back(*std::move(prefix));
  }
  std::ranges::sort(prefixes, std::ranges::greater(), [](const StoredPrefix& prefix) {
    return std::tuple(prefix.used_ns, prefix.tokens, prefix.id);
  });
  return prefixes;
}

std::vector<SnapshotKey> SegmentIndex::OnlyOf(const SnapshotKey& id) const {
  std::vector<SnapshotKey> keys;
  uint64_t shared = 0;  // followers of the segment that were counted already
  for (const Entry* entry = Find(id); entry != nullptr; entry = Find(entry->before)) {
    if (Followers(entry->segment.key) > shared) break;
    keys.push_back(entry->segment.key);
    if (entry->segment.begins_prefix()) break;
    shared = 1;
  }
  return keys;
}

}  // namespace quire::server
