// SnapshotStore::CheckInvariants: every count again, from the trees.
#include <fmt/format.h>

#include "cache/store_node.h"

namespace quire::cache {

std::expected<void, std::string> SnapshotStore::CheckTree(Tree& tree, StoreAccounting* bytes, Owned* owned,
                                                          size_t* leases, size_t* queued) const {
  std::vector<PrefixNode*> todo = {tree.prefixes.root()};
  while (!todo.empty()) {
    PrefixNode* node = todo.back();
    todo.pop_back();
    for (const auto& [key, child] : node->children) todo.push_back(child.get());
    const StoreEntry& entry = EntryOf(node);
    const auto fail = [&](const char* what) {
      return std::unexpected(fmt::format("node [{}, {}): {}", node->from, node->to, what));
    };
    if (entry.tree != &tree || entry.pins != 0) return fail("of another tree, or still pinned");
    if (node->parent == nullptr) continue;
    const Snapshot& snapshot = entry.snapshot;
    if (snapshot.empty() || snapshot.from() != node->from || snapshot.to() != node->to) {
      return fail("its snapshot does not span exactly its edge");
    }
    if (snapshot.has_slot() && snapshot.Slot().size() != StoredSlotBytes(cache_.layout())) {
      return fail("its state is not in the form of the store");
    }
    if (!snapshot.SharesFront(EntryOf(node->parent).snapshot))
      return fail("does not share its parent's pages");
    if (node->children.empty() && snapshot.DeepestRestorable(node->to) == 0 && entry.leases.empty()) {
      return fail("a leaf that nothing can be restored from");
    }
    for (const Lease::Record& lease : entry.leases) {
      if (lease.node != node || lease.offset > node->to) return fail("a lease of another node");
    }
    if (entry.queued.has_value() != Evictable(node)) return fail("wrongly in or not in the eviction queue");
    if (entry.queued) {
      const auto at = queue_.find(*entry.queued);
      if (at == queue_.end() || at->second != node) return fail("queued as another");
      const EvictionKey now{entry.last_use, -node->to, -static_cast<int64_t>(snapshot.bytes()), entry.id};
      if (*entry.queued != now) return fail("queued in an old place");
      ++*queued;
    }
    if (entry.claim.owner() == nullptr || entry.claim.bytes() != snapshot.bytes()) {
      return fail("of no owner, or its owner's bytes are miscounted");
    }
    (*owned)[entry.claim.owner()] += snapshot.bytes();
    *leases += entry.leases.size();
    // A node that was split or merged counts as if each had been added by itself.
    bytes->Add(snapshot);
  }
  return {};
}

std::expected<void, std::string> SnapshotStore::CheckInvariants() const {
  StoreAccounting again(cache_);
  size_t nodes = 0;
  Owned owned;
  size_t leases = 0;
  size_t queued = 0;
  for (const auto& [isolation, tree] : trees_) {
    if (auto ok = tree->prefixes.CheckInvariants(); !ok) return ok;
    if (tree->prefixes.nodes() == 0) return std::unexpected("an empty tree is kept");
    if (auto ok = CheckTree(*tree, &again, &owned, &leases, &queued); !ok) return ok;
    nodes += tree->prefixes.nodes();
  }
  if (!(again == bytes_)) return std::unexpected("bytes held are miscounted");
  bool counted = true;
  owners_.ForEachOwner([&](const OwnerShares::Share& owner) {
    const auto found = owned.find(&owner);
    const size_t of_nodes = found == owned.end() ? 0 : found->second;
    counted = counted && owner.claims > 0 && owner.bytes == of_nodes + owner.held;
  });
  if (!counted) return std::unexpected("the bytes of an owner are miscounted");
  if (nodes != nodes_ || leases != leases_ || queued != queue_.size()) {
    return std::unexpected("nodes, leases or the eviction queue are miscounted");
  }
  return {};
}

}  // namespace quire::cache
