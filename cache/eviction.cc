// The eviction order of a SnapshotStore, and the nodes that are never evicted.
#include <algorithm>
#include <new>
#include <utility>

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

bool Lease::keeps_more() const { return record_ != nullptr && record_->offset < record_->node->to; }

Lease SnapshotStore::NewLease(std::unique_ptr<Lease::Record> record, PrefixNode* node, Position offset) {
  record->store = this;
  record->node = node;
  record->offset = offset;
  EntryOf(node).leases.push_back(*record);
  ++leases_;
  Requeue(node);
  return Lease(std::move(record));
}

void SnapshotStore::EndLease(Lease::Record& record) {
  auto& leases = EntryOf(record.node).leases;
  leases.erase(leases.iterator_to(record));
  --leases_;
  PruneUpwards(record.node);
}

bool SnapshotStore::Evictable(const PrefixNode* node) const {
  const StoreEntry& entry = EntryOf(node);
  if (node->parent == nullptr || !entry.leases.empty() || entry.pins > 0) return false;
  if (node->children.empty()) return true;
  return node->children.size() == 1 && !entry.user_point && entry.snapshot.has_state();
}

void SnapshotStore::Unqueue(PrefixNode* node) {
  StoreEntry& entry = EntryOf(node);
  if (entry.queued) entry.place = queue_.extract(*entry.queued);
  entry.queued.reset();
}

void SnapshotStore::Requeue(PrefixNode* node) {
  EntryOf(node).tree->changes = ++changes_;
  Unqueue(node);
  StoreEntry& entry = EntryOf(node);
  entry.claim.SetBytes(entry.snapshot.empty() ? 0 : entry.snapshot.bytes());
  if (!Evictable(node)) return;
  entry.queued =
      EvictionKey{entry.last_use, -node->to, -static_cast<int64_t>(entry.snapshot.bytes()), entry.id};
  entry.place.key() = *entry.queued;
  entry.place.mapped() = node;
  queue_.insert(std::move(entry.place));
}

void SnapshotStore::Touch(PrefixNode* node, std::string_view owner) {
  owners_.Use(EntryOf(node).claim, owner);
  EntryOf(node).last_use = clock_;
  EntryOf(node).used = std::chrono::steady_clock::now();
  Requeue(node);
}

OwnerShares::Claim SnapshotStore::EnterRunning(std::string_view owner) try {
  return owners_.EnterRunning(owner);
} catch (const std::bad_alloc&) {
  return {};
}

void SnapshotStore::Pin(PrefixNode* node, int change) {
  EntryOf(node).pins += change;
  if (node->parent != nullptr) EntryOf(EntryOf(node).tree->prefixes.root()).pins += change;
  Requeue(node);
}

// What a return to the node's end computes without it: the tokens behind the deepest restore point above.
Position SnapshotStore::TokensToRecompute(const PrefixNode* node) const {
  Position restorable = 0;
  for (const PrefixNode* above = node->parent; above != nullptr && restorable == 0; above = above->parent) {
    restorable = EntryOf(above).snapshot.DeepestRestorable(above->to);
  }
  return node->to - restorable;
}

// A node that merges into its child leaves its full-attention pages there. Every node that is evicted has
// bytes: a leaf has pages or a state, one that merges has a state.
double SnapshotStore::CostOfLoss(const PrefixNode* node) const {
  const StoreEntry& entry = EntryOf(node);
  const size_t bytes = node->children.empty() ? entry.snapshot.bytes() : bytes_.StateBytes(entry.snapshot);
  const uint64_t idle = clock_ - entry.last_use + 1;
  return static_cast<double>(TokensToRecompute(node)) /
         (static_cast<double>(bytes) * static_cast<double>(idle));
}

void SnapshotStore::Evict(PrefixNode* node) {
  if (!node->children.empty()) {
    MergeNode(node);
    ++counters_.merges;
    return;
  }
  PrefixNode* parent = node->parent;
  RemoveLeaf(node);
  ++counters_.evictions;
  PruneUpwards(parent);
}

void SnapshotStore::PruneUpwards(PrefixNode* node) {
  while (node->parent != nullptr) {
    StoreEntry& entry = EntryOf(node);
    const bool needed = !entry.leases.empty() || entry.pins > 0;
    const bool hollow = entry.snapshot.DeepestRestorable(node->to) == 0;
    if (!needed && hollow && node->children.empty()) {
      PrefixNode* parent = node->parent;
      RemoveLeaf(node);
      node = parent;
      continue;
    }
    const bool empty_handed = hollow || (!entry.inserted && !entry.snapshot.has_state());
    if (!needed && empty_handed && !entry.user_point && node->only_child() != nullptr) {
      MergeNode(node);
    } else {
      Requeue(node);
    }
    return;
  }
  DropIfEmpty(*EntryOf(node).tree);
}

// Whether giving up the node frees something of what is short. A leaf goes with all it has, and makes way for
// those before it; a node that merges into its child leaves the full-attention pages there, but for the page
// in which they meet where both have one.
bool SnapshotStore::Helps(const PrefixNode* node, const Demand& demand) const {
  if (node->children.empty()) return true;
  const auto is_short = [](const Demand::Kind& kind) { return kind.need > kind.capacity - kind.used; };
  const Snapshot& snapshot = EntryOf(node).snapshot;
  const Snapshot& child = EntryOf(node->only_child()).snapshot;
  const bool converted = cache_.layout().stored_state != ElementType::kF32;
  bool blocks_short = is_short(demand.slots) || is_short(demand.stored_slots);
  bool helps = is_short(converted ? demand.stored_slots : demand.slots) && snapshot.has_slot();
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
  const auto wanting = [&] {
    now = cache_.Refreshed(demand);
    return !now.fits();
  };
  (void)EvictWhile(wanting, [&](const PrefixNode* node) { return Helps(node, now); });
}

void SnapshotStore::set_budget(size_t bytes) {
  options_.budget_bytes = bytes;
  MakeRoom([] { return size_t{0}; });
}

void SnapshotStore::Clear() {
  while (!queue_.empty()) Evict(queue_.begin()->second);
}

}  // namespace quire::cache
