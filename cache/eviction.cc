// What a SnapshotStore gives up, in which order, and who is spared.
#include <algorithm>
#include <utility>

#include "cache/check.h"
#include "cache/store_node.h"

namespace quire::cache {

Lease::Lease() = default;
Lease::Lease(std::unique_ptr<Record> record) : record_(std::move(record)) {}
Lease::Lease(Lease&& other) noexcept = default;

Lease& Lease::operator=(Lease&& other) noexcept {
  Lease old(std::exchange(record_, std::move(other.record_)));
  return *this;
}

Lease::~Lease() {
  if (record_ != nullptr) record_->store->EndLease(*record_);
}

Lease SnapshotStore::NewLease(PrefixNode* node, Position offset) {
  auto record = std::make_unique<Lease::Record>(Lease::Record{this, node, offset});
  HeldBy(node).leases.push_back(record.get());
  ++leases_;
  Requeue(node);
  return Lease(std::move(record));
}

void SnapshotStore::EndLease(Lease::Record& record) {
  std::erase(HeldBy(record.node).leases, &record);
  --leases_;
  Tidy(record.node);
}

bool SnapshotStore::Evictable(const PrefixNode* node) const {
  const Held& held = HeldBy(node);
  if (node->parent == nullptr || !held.leases.empty() || held.pins > 0) return false;
  if (node->children.empty()) return true;
  return node->children.size() == 1 && !held.user_point && held.snapshot.has_state();
}

void SnapshotStore::Unqueue(PrefixNode* node) {
  Held& held = HeldBy(node);
  if (held.queued) queue_.erase(*held.queued);
  held.queued.reset();
}

void SnapshotStore::Requeue(PrefixNode* node) {
  Unqueue(node);
  if (!Evictable(node)) return;
  Held& held = HeldBy(node);
  held.queued = EvictionKey{held.last_use, -node->to, -static_cast<int64_t>(held.snapshot.bytes()), held.id};
  queue_.emplace(*held.queued, node);
}

void SnapshotStore::Touch(PrefixNode* node) {
  HeldBy(node).last_use = clock_;
  Requeue(node);
}

void SnapshotStore::Pin(PrefixNode* node, int change) {
  HeldBy(node).pins += change;
  if (node->parent != nullptr) HeldBy(HeldBy(node).tree->prefixes.root()).pins += change;
  Requeue(node);
}

void SnapshotStore::Evict(PrefixNode* node) {
  Held& held = HeldBy(node);
  if (options_.tier != nullptr && held.snapshot.whole()) {
    options_.tier->Demote(held.tree->isolation, held.tree->prefixes.Path(node), held.snapshot);
  }
  if (!node->children.empty()) {
    MergeNode(node);
    ++counters_.merges;
    return;
  }
  PrefixNode* parent = node->parent;
  RemoveLeaf(node);
  ++counters_.evictions;
  Tidy(parent);
}

void SnapshotStore::Tidy(PrefixNode* node) {
  while (node->parent != nullptr) {
    Held& held = HeldBy(node);
    const bool needed = !held.leases.empty() || held.pins > 0;
    const bool hollow = held.snapshot.DeepestRestorable(node->to) == 0;
    if (!needed && hollow && node->children.empty()) {
      PrefixNode* parent = node->parent;
      RemoveLeaf(node);
      node = parent;
      continue;
    }
    const bool empty_handed = hollow || (!held.inserted && !held.snapshot.has_state());
    if (!needed && empty_handed && !held.user_point && node->only_child() != nullptr) {
      MergeNode(node);
    } else {
      Requeue(node);
    }
    return;
  }
  DropIfEmpty(*HeldBy(node).tree);
}

void SnapshotStore::Reclaim(const Demand& demand) {
  const auto fits = [&] { return cache_.Refreshed(demand).fits(); };
  const auto helps = [&](const PrefixNode* node) {
    const Demand now = cache_.Refreshed(demand);
    const bool slots_short = now.slots.need > now.slots.capacity - now.slots.used;
    bool pages_short = false;
    for (const Demand::Kind& kind : now.pages) pages_short |= kind.need > kind.capacity - kind.used;
    const Held& held = HeldBy(node);
    // Only slots are missing: whoever has none is left alone.
    if (slots_short && !pages_short) return held.snapshot.has_slot();
    return true;
  };
  bool progress = true;
  while (progress && !fits()) {
    progress = false;
    auto at = queue_.begin();
    while (at != queue_.end() && !fits()) {
      if (!helps(at->second)) {
        ++at;
        continue;
      }
      const EvictionKey key = at->first;
      Evict(at->second);
      progress = true;
      at = queue_.upper_bound(key);
    }
  }
}

void SnapshotStore::set_budget(size_t bytes) {
  options_.budget_bytes = bytes;
  MakeRoom([] { return size_t{0}; });
}

void SnapshotStore::Clear() {
  while (!queue_.empty()) Evict(queue_.begin()->second);
}

}  // namespace quire::cache
