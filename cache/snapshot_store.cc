#include "cache/snapshot_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "cache/check.h"
#include "cache/store_node.h"

namespace quire::cache {
namespace {

// Prompts whose first tokens agree this far count as begun alike, for miss reasons.
constexpr size_t kStartTokens = 16;
constexpr size_t kStartsKept = size_t{1} << 16;

uint64_t HashStart(std::span<const TokenId> tokens, uint64_t seed) {
  uint64_t hash = seed ^ 0x9e3779b97f4a7c15U;
  for (const TokenId token : tokens.first(kStartTokens)) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xff51afd7ed558ccdU;
    hash ^= hash >> 32;
  }
  return hash;
}

uint64_t HashKey(std::string_view isolation) { return std::hash<std::string_view>()(isolation); }

}  // namespace

std::string_view Name(MissReason reason) {
  constexpr std::array<std::string_view, kMissReasons> kNames = {"none",    "cold", "diverged",
                                                                 "evicted", "salt", "layout"};
  return kNames[static_cast<size_t>(reason)];
}

SnapshotStore::SnapshotStore(HybridCache& cache, StoreOptions options)
    : cache_(cache), options_(options), bytes_(cache), owners_(options.spared_for) {
  cache_.set_reclaimer(this);
}

SnapshotStore::~SnapshotStore() {
  QUIRE_CACHE_CHECK(leases_ == 0);
  cache_.set_reclaimer(nullptr);
}

SnapshotStore::Tree* SnapshotStore::FindTree(std::string_view isolation) {
  const auto tree = trees_.find(isolation);
  return tree == trees_.end() ? nullptr : tree->second.get();
}

SnapshotStore::Tree& SnapshotStore::MakeTree(std::string_view isolation) {
  if (Tree* tree = FindTree(isolation)) return *tree;
  auto tree = std::make_unique<Tree>(std::string(isolation), options_.lookahead);
  tree->prefixes.root()->value = std::make_unique<StoreEntry>(tree.get());
  return *trees_.emplace(tree->isolation, std::move(tree)).first->second;
}

void SnapshotStore::DropIfEmpty(Tree& tree) {
  PrefixNode* root = tree.prefixes.root();
  if (root->children.empty() && EntryOf(root).pins == 0) trees_.erase(trees_.find(tree.isolation));
}

SnapshotStore::RestorePoint SnapshotStore::DeepestRestorable(PrefixNode* node, Position limit) const {
  RestorePoint best;
  // If two nodes reach the same offset, the upper one: the lower one is not needed.
  for (; node->parent != nullptr && best.offset <= node->to; node = node->parent) {
    const Position offset = EntryOf(node).snapshot.DeepestRestorable(std::min(limit, node->to));
    if (offset > 0 && offset >= best.offset) best = {node, offset};
  }
  return best;
}

MissReason SnapshotStore::ClassifyMiss(std::string_view isolation, std::span<const TokenId> tokens,
                                       const PrefixTree::Match& match, Position restorable,
                                       Position limit) const {
  if (restorable >= limit) return MissReason::kNone;
  if (restorable == 0 && match.matched < static_cast<Position>(kStartTokens) &&
      tokens.size() >= kStartTokens) {
    const uint64_t key = HashKey(isolation);
    if (own_starts_.contains(HashStart(tokens, key))) return MissReason::kEvicted;
    const auto start = starts_.find(HashStart(tokens, 0));
    if (start != starts_.end() && start->second != key) return MissReason::kSalt;
  }
  if (match.matched == 0) return MissReason::kCold;
  const Position matched = std::min(match.matched, limit);
  for (const PrefixNode* node = match.node; node->to > restorable; node = node->parent) {
    const Position lost = EntryOf(node).lost_at;
    if (lost > restorable && lost <= matched) return MissReason::kEvicted;
  }
  if (restorable < matched) return MissReason::kLayout;
  const StoreEntry& entry = EntryOf(match.node);
  const bool more = match.matched < entry.tree->prefixes.Keys(tokens);
  const StoreEntry::Ghost next{match.matched, more ? entry.tree->prefixes.KeyAt(tokens, match.matched) : 0};
  const auto ghosts = entry.ghosts.all();
  if (more && std::ranges::find(ghosts, next) != ghosts.end()) return MissReason::kEvicted;
  return MissReason::kDiverged;
}

Probed SnapshotStore::Probe(std::string_view isolation, std::span<const TokenId> tokens) {
  const Position limit = static_cast<Position>(tokens.size()) - 1;
  Tree* tree = FindTree(isolation);
  const PrefixTree::Match match = tree == nullptr ? PrefixTree::Match{} : tree->prefixes.Find(tokens);
  RestorePoint point;
  if (match.matched > 0) point = DeepestRestorable(match.node, std::min(match.matched, limit));
  return {match.matched, point.offset, ClassifyMiss(isolation, tokens, match, point.offset, limit)};
}

Restored SnapshotStore::Restore(std::string_view isolation, std::span<const TokenId> tokens,
                                Sequence& sequence, std::string_view owner) {
  const Probed probed = Probe(isolation, tokens);
  Restored result{probed.matched, 0, probed.reason, Lease()};
  if (probed.restorable == 0) {
    ++counters_.lookups;
    counters_.tokens_matched += static_cast<uint64_t>(probed.matched);
    ++counters_.misses[static_cast<size_t>(probed.reason)];
    return result;
  }
  PrefixNode* deepest = FindTree(isolation)->prefixes.Find(tokens).node;
  const RestorePoint point = DeepestRestorable(deepest, probed.restorable);
  std::unique_ptr<Lease::Record> record(new (std::nothrow) Lease::Record);
  result.out_of_memory = record == nullptr;
  if (result.out_of_memory) return result;
  // From here on the node stays, whatever the restore gives up for a slot.
  Lease lease = NewLease(std::move(record), point.node, point.offset);
  const auto restored = cache_.Restore(sequence, EntryOf(point.node).snapshot, point.offset);
  result.out_of_memory = !restored && (restored.error().code == ErrorCode::kOutOfMemory ||
                                       restored.error().code == ErrorCode::kOutOfSlots);
  if (result.out_of_memory) return result;
  QUIRE_CACHE_CHECK(restored.has_value() && *restored == probed.restorable);
  ++counters_.lookups;
  counters_.tokens_matched += static_cast<uint64_t>(probed.matched);
  result.restored = *restored;
  result.lease = std::move(lease);
  ++clock_;
  Touch(FindTree(isolation)->prefixes.Find(tokens).node, owner);
  Touch(point.node, owner);
  ++EntryOf(point.node).hits;
  ++counters_.hits;
  counters_.tokens_restored += static_cast<uint64_t>(result.restored);
  if (probed.reason != MissReason::kNone) ++counters_.partial[static_cast<size_t>(probed.reason)];
  return result;
}

const Snapshot* SnapshotStore::Find(std::string_view isolation, std::span<const TokenId> tokens) const {
  const auto tree = trees_.find(isolation);
  if (tree == trees_.end() || options_.lookahead) return nullptr;
  const PrefixTree::Match match = tree->second->prefixes.Find(tokens);
  if (match.matched < static_cast<Position>(tokens.size())) return nullptr;
  return &EntryOf(match.node).snapshot;
}

Result<Snapshot> SnapshotStore::ImportBehind(std::string_view isolation, std::span<const TokenId> tokens,
                                             Position from, Position to,
                                             const std::function<void(const Snapshot::Part&)>& fill) try {
  const Snapshot none;
  Tree* tree = FindTree(isolation);
  if (from == 0 || tree == nullptr) return cache_.Import(none, from, to, fill);
  const PrefixTree::Match match = tree->prefixes.Find(tokens);
  if (match.matched < from || options_.lookahead) {
    return Fail(ErrorCode::kInvalid, fmt::format("import from {} behind {} tokens", from, match.matched));
  }
  // The node stays while the import takes memory that may cost others their place.
  const Lease stays = NewLease(std::make_unique<Lease::Record>(), match.node, match.matched);
  return cache_.Import(EntryOf(match.node).snapshot, from, to, fill);
} catch (const std::bad_alloc&) {
  return NoMemory();
}

bool SnapshotStore::Promote(std::string_view isolation, std::span<const TokenId> tokens, Snapshot snapshot,
                            std::string_view owner) {
  if (!Insert(isolation, tokens, std::move(snapshot), false, owner)) return false;
  ++counters_.promotions;
  return true;
}

void SnapshotStore::RememberStart(std::string_view isolation, std::span<const TokenId> tokens) {
  if (tokens.size() < kStartTokens) return;
  if (starts_.size() >= kStartsKept) starts_.clear();
  if (own_starts_.size() >= kStartsKept) own_starts_.clear();
  try {
    starts_.emplace(HashStart(tokens, 0), HashKey(isolation));
    own_starts_.insert(HashStart(tokens, HashKey(isolation)));
  } catch (const std::bad_alloc&) {
    return;  // a miss may then be called cold
  }
}

Result<Lease> SnapshotStore::Insert(std::string_view isolation, std::span<const TokenId> tokens,
                                    Snapshot snapshot, bool user_point, std::string_view owner) try {
  const Position to = snapshot.to();
  const Position keys = static_cast<Position>(tokens.size()) - (options_.lookahead ? 1 : 0);
  if (snapshot.empty()) return Fail(ErrorCode::kInvalid, "the snapshot is empty");
  if (!cache_.Owns(snapshot)) return Fail(ErrorCode::kInvalid, "snapshot of another cache");
  if (to > keys) {
    return Fail(ErrorCode::kInvalid, fmt::format("a snapshot to {} for {} tokens", to, tokens.size()));
  }
  if (!snapshot.whole())
    return Fail(ErrorCode::kUnsupported, "some layer has no state at the snapshot's end");
  if (!snapshot.exact())
    return Fail(ErrorCode::kUnsupported, "a range was removed before the snapshot's end");
  tokens = tokens.first(static_cast<size_t>(to) + (options_.lookahead ? 1 : 0));

  const Snapshot* known = Find(isolation, tokens);
  if (known == nullptr || known->to() != to || !known->whole()) {
    if (auto stored = cache_.ConvertToStored(snapshot); !stored) {
      ++counters_.inserts_refused;
      return std::unexpected(std::move(stored.error()));
    }
  }
  auto lease = InsertInto(MakeTree(isolation), tokens, std::move(snapshot), user_point, owner);
  if (lease) RememberStart(isolation, tokens);
  return lease;
} catch (const std::bad_alloc&) {
  return NoMemory();
}

Result<Lease> SnapshotStore::InsertInto(Tree& tree, std::span<const TokenId> tokens, Snapshot snapshot,
                                        bool user_point, std::string_view owner) {
  const Position to = snapshot.to();
  const PrefixTree::Match match = tree.prefixes.Find(tokens);
  PrefixNode* node = match.node;
  const bool leaf = match.matched < to;
  std::unique_ptr<Lease::Record> record;
  OwnerShares::Claim claim;
  try {
    claim = owners_.Enter(owner);
    record = std::make_unique<Lease::Record>();
    bytes_.Reserve();
    snapshot.ShareFront(EntryOf(node).snapshot, leaf ? match.matched : 0);
  } catch (const std::bad_alloc&) {
    PruneUpwards(node);
    throw;
  }
  const auto missing = [&]() -> size_t {
    if (leaf) return bytes_.Missing(snapshot);
    return node->to == to && EntryOf(node).snapshot.whole() ? 0 : bytes_.MissingState(snapshot);
  };
  Pin(node, +1);
  claim.SetBytes(missing());  // its owner's already when others' would make room for it
  const bool room = MakeRoom(missing);
  Pin(node, -1);
  try {
    if (!room) {
      ++counters_.inserts_refused;
      auto refused =
          Fail(ErrorCode::kOutOfPages, fmt::format("prefix snapshots: budget {}, held {}, demand {} bytes",
                                                   options_.budget_bytes, bytes_.total(), missing()));
      PruneUpwards(node);
      return refused;
    }
    if (match.matched < node->to) node = SplitNode(tree, node, match.matched);
    if (leaf) {
      node = AddLeaf(tree, node, tokens, std::move(snapshot), std::move(claim));
    } else {
      FillMissingState(node, snapshot);
    }
  } catch (const std::bad_alloc&) {
    PruneUpwards(node);
    throw;
  }
  StoreEntry& entry = EntryOf(node);
  entry.inserted = true;
  entry.user_point = entry.user_point || user_point;
  Touch(node, owner);
  ++counters_.inserts;
  Lease lease = NewLease(std::move(record), node, to);
  // Making room may have left the node that the tokens entered with nothing to stand for.
  if (match.node != node) PruneUpwards(match.node);
  return lease;
}

PrefixNode* SnapshotStore::AddLeaf(Tree& tree, PrefixNode* parent, std::span<const TokenId> tokens,
                                   Snapshot snapshot, OwnerShares::Claim claim) {
  auto entry = std::make_unique<StoreEntry>(&tree);
  PrefixNode* leaf = tree.prefixes.AddLeaf(parent, tokens, snapshot.to());
  entry->id = next_id_++;
  entry->number = ++tree.nodes_made;
  entry->snapshot = std::move(snapshot);
  entry->claim = std::move(claim);
  bytes_.Add(entry->snapshot);
  leaf->value = std::move(entry);
  ++nodes_;
  Requeue(parent);
  return leaf;
}

PrefixNode* SnapshotStore::SplitNode(Tree& tree, PrefixNode* node, Position at) {
  StoreEntry& below = EntryOf(node);
  auto above = std::make_unique<StoreEntry>(&tree);
  auto split = tree.prefixes.PlanSplit(node, at);
  above->snapshot = below.snapshot.SplitFront(at);
  PrefixNode* upper = tree.prefixes.Split(std::move(split));  // from here on nothing fails
  above->id = next_id_++;
  above->number = ++tree.nodes_made;
  above->last_use = below.last_use;
  above->claim = below.claim.Copy();
  above->created = below.created;
  above->used = below.used;
  if (below.lost_at <= at) above->lost_at = std::exchange(below.lost_at, 0);
  const StoreEntry::Ghosts ghosts = std::exchange(below.ghosts, {});
  for (const StoreEntry::Ghost& ghost : ghosts.all())
    (ghost.at <= at ? above->ghosts : below.ghosts).Add(ghost);
  for (auto lease = below.leases.begin(); lease != below.leases.end();) {
    const auto next = std::next(lease);
    if (lease->offset <= at) {
      lease->node = upper;
      above->leases.splice(above->leases.end(), below.leases, lease);
    }
    lease = next;
  }
  bytes_.AddUpper(above->snapshot);
  upper->value = std::move(above);
  ++nodes_;
  Requeue(upper);
  Requeue(node);
  return upper;
}

void SnapshotStore::MergeNode(PrefixNode* node) {
  PrefixNode* child = node->only_child();
  StoreEntry& upper = EntryOf(node);
  StoreEntry& lower = EntryOf(child);
  QUIRE_CACHE_CHECK(upper.leases.empty() && upper.pins == 0);
  const bool restorable = upper.inserted && upper.snapshot.has_state();
  lower.lost_at = std::max({lower.lost_at, upper.lost_at, restorable ? node->to : 0});
  for (const StoreEntry::Ghost& ghost : upper.ghosts.all()) lower.ghosts.Add(ghost);
  bytes_.RemoveUpper(upper.snapshot);
  lower.snapshot.MergeFront(std::move(upper.snapshot));
  Unqueue(node);
  upper.tree->prefixes.MergeIntoChild(node);
  --nodes_;
  Requeue(child);
}

void SnapshotStore::RemoveLeaf(PrefixNode* node) {
  StoreEntry& entry = EntryOf(node);
  QUIRE_CACHE_CHECK(entry.leases.empty() && entry.pins == 0);
  entry.tree->changes = ++changes_;
  EntryOf(node->parent).ghosts.Add({node->from, entry.tree->prefixes.FirstKey(*node)});
  bytes_.Remove(entry.snapshot);
  Unqueue(node);
  entry.tree->prefixes.RemoveLeaf(node);
  --nodes_;
}

void SnapshotStore::FillMissingState(PrefixNode* node, const Snapshot& snapshot) {
  StoreEntry& entry = EntryOf(node);
  if (entry.snapshot.whole()) return;
  bytes_.RemoveState(entry.snapshot);
  entry.snapshot.AdoptState(snapshot);
  bytes_.AddState(entry.snapshot);
  Requeue(node);
}

void SnapshotStore::ForEachNode(
    const std::function<void(std::string_view, const std::vector<TokenId>&, const Snapshot&)>& visit) const {
  for (const auto& [isolation, tree] : trees_) {
    std::vector<const PrefixNode*> todo = {tree->prefixes.root()};
    while (!todo.empty()) {
      const PrefixNode* node = todo.back();
      todo.pop_back();
      for (const auto& [key, child] : node->children) todo.push_back(child.get());
      if (node->parent != nullptr) visit(isolation, tree->prefixes.Path(node), EntryOf(node).snapshot);
    }
  }
}

StoreStats SnapshotStore::stats() const {
  StoreStats stats = counters_;
  stats.budget_bytes = options_.budget_bytes;
  stats.bytes = bytes_.total();
  stats.bytes_peak = bytes_.peak();
  stats.full_bytes = bytes_.full();
  stats.window_bytes = bytes_.window();
  stats.slot_bytes = bytes_.slots();
  stats.shared_bytes = bytes_.shared();
  stats.nodes = nodes_;
  stats.trees = trees_.size();
  stats.leases = leases_;
  return stats;
}

}  // namespace quire::cache
