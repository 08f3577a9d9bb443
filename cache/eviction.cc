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

// Whether giving up the node frees something of what is short. A leaf goes with all it has, and makes way for
// those before it; a node that merges into its child leaves the full-attention pages there, but for the page
// in which they meet where both have one.
bool SnapshotStore::Helps(const PrefixNode* node, const Demand& demand) const {
  if (node->children.empty()) return true;
  const auto is_short = [](const Demand::Kind& kind) { return kind.need > kind.capacity - kind.used; };
  const Snapshot& snapshot = HeldBy(node).snapshot;
  const Snapshot& child = HeldBy(node->only_child()).snapshot;
  bool blocks_short = is_short(demand.slots);
  bool helps = blocks_short && snapshot.has_slot();
  for (size_t g = 0; g < demand.pages.size(); ++g) {
    if (!is_short(demand.pages[g])) continue;
    blocks_short = true;
    const bool window = cache_.layout().groups[g].window > 0;
    helps = helps || (window ? snapshot.has_window() : snapshot.EndsInOwnPage(g, child));
  }
  // Where blocks suffice it is bytes that are short, and every node gives some.
  return helps || !blocks_short;
}

void SnapshotStore::Reclaim(const Demand& demand) {
  Demand now = cache_.Refreshed(demand);
  bool progress = true;
  while (progress && !now.fits()) {
    progress = false;
    auto at = queue_.begin();
    while (at != queue_.end() && !now.fits()) {
      if (!Helps(at->second, now)) {
        ++at;
        continue;
      }
      const EvictionKey key = at->first;
      Evict(at->second);
      progress = true;
      now = cache_.Refreshed(demand);
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
