// The prefix snapshots of one model: a prefix tree per isolation key, each node owning a snapshot of its
// edge, within one byte budget.
//
//   SnapshotStore store(cache, {.budget_bytes = 2 << 30});
//   Restored hit = store.Restore(key, prompt, sequence);    // sequence now at hit.restored < prompt.size()
//   ... prefill the rest, with captures scheduled ...
//   for (Snapshot& s : cache.TakeCaptures(sequence)) store.Insert(key, prompt, std::move(s));
//
// Invariants
// - The bytes of all nodes never exceed the budget: eviction comes before insertion. Each page and slot
//   counts once. A lowered budget is met as soon as leases allow it; until then nothing is inserted.
// - A node's snapshot spans exactly its edge; its full-attention pages before the edge are its parent's.
// - Only whole() and exact() snapshots are stored: a restored prefix is bit-identical to a computed one,
//   unless Layout::stored_state says that recurrent states lose bits.
// - A leased node is neither evicted nor merged away; nor are the pages before it.
// - Prefixes of different isolation keys are separate: neither matches nor timing reveal other keys.
// - Evicting and ending a lease need no memory: each node has what they take from the beginning.
//
// Eviction: of the kEvictionCandidates nodes that were used longest ago, the one whose loss costs least: the
// tokens that a return would compute again, per byte that it frees and per moment since its last use. The
// rate at which a model computes tokens is the same for all nodes, so tokens stand for time. Nodes of equal
// cost, and those behind the candidates, go by last use, then depth (deeper first), then size (larger first).
// All this is among the nodes that are not spared for their owner, and only then among the others
// (owner_shares.h, which reads a clock). A leaf is removed; a node with its own state and one child merges
// into the child, which supersedes it; a node that branches stays; a user restore point is never merged, only
// removed as a leaf. A match counts as use of the node it restores from and of the deepest one it enters, not
// of their ancestors. Engine thread only. The cache outlives the store, the store its leases.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/hybrid_cache.h"
#include "cache/owner_shares.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot.h"
#include "cache/store_accounting.h"

namespace quire::cache {

class SnapshotStore;

// Why less was restored than the prompt could use.
enum class MissReason : uint8_t {
  kNone,      // all but the last token was restored
  kCold,      // nothing like it was ever here
  kDiverged,  // the prompt leaves what is known at `matched`
  kEvicted,   // it was here, or could be restored further, before an eviction
  kSalt,      // another isolation key's requests began like it
  kLayout,    // tokens match further, but some layer kind has no state there
};
inline constexpr size_t kMissReasons = 6;
std::string_view Name(MissReason reason);

struct Probed {
  Position matched = 0;     // tokens that agree with the tree; where the prompt diverges
  Position restorable = 0;  // deepest offset < tokens.size() that every layer can be restored at
  MissReason reason = MissReason::kCold;
};

struct StoreOptions {
  size_t budget_bytes = 0;
  bool lookahead = false;  // keys pair each token with the next, see prefix_tree.h
  std::chrono::nanoseconds spared_for = std::chrono::minutes(10);  // see owner_shares.h
};

// Keeps a node, and so the prefix up to it, while a running sequence stands on it. Move-only; a default one
// keeps nothing.
class Lease {
 public:
  Lease();
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();
  explicit operator bool() const { return record_ != nullptr; }
  // Whether the node reaches beyond what is stood on, so that the lease keeps more than that.
  bool keeps_more() const;

  struct Record;

 private:
  friend class SnapshotStore;
  explicit Lease(std::unique_ptr<Record> record);
  std::unique_ptr<Record> record_;
};

struct Restored {
  Position matched = 0;
  Position restored = 0;  // the sequence's offset; 0: nothing was restored and the sequence is as it was
  MissReason reason = MissReason::kCold;
  Lease lease;
  // For the books of it, or for the slot of a state that is stored otherwise: nothing was restored, nor
  // counted.
  bool out_of_memory = false;
};

struct StoreStats {
  size_t budget_bytes = 0;
  size_t bytes = 0;         // held by nodes, shared ones once
  size_t bytes_peak = 0;    // highest ever, also inside an operation; never above the budget of the time
  size_t full_bytes = 0;    // of these: full-attention pages,
  size_t window_bytes = 0;  // window pages,
  size_t slot_bytes = 0;    // and state slots
  size_t shared_bytes = 0;  // what the nodes would hold more without sharing
  size_t nodes = 0;
  size_t trees = 0;
  size_t leases = 0;
  uint64_t lookups = 0;                          // calls of Restore
  uint64_t hits = 0;                             // that restored something
  std::array<uint64_t, kMissReasons> misses{};   // that restored nothing, by reason
  std::array<uint64_t, kMissReasons> partial{};  // that restored less than could be used, by reason
  uint64_t tokens_matched = 0;
  uint64_t tokens_restored = 0;
  uint64_t inserts = 0;
  uint64_t inserts_refused = 0;  // out of memory
  uint64_t evictions = 0;        // leaves removed
  uint64_t merges = 0;           // restore points given up to their only child
  uint64_t promotions = 0;       // snapshots that came back from the lower tier
};

// A node as views of the store show it. Valid during the visit.
struct NodeView {
  std::string_view isolation;
  uint64_t id = 0;      // > 0; while the node lives
  uint64_t parent = 0;  // 0: at the root
  // The same, counted within the isolation key: `id` counts the nodes of all keys.
  uint64_t number = 0;
  uint64_t parent_number = 0;
  Position from = 0;
  Position to = 0;
  const TokenRun& tokens;        // [from, to), with look-ahead one more
  StoreAccounting::Bytes bytes;  // what it counts
  bool restorable = false;       // every layer can be restored at `to`
  bool user_point = false;
  size_t leases = 0;
  size_t evicted_children = 0;  // of late
  uint64_t hits = 0;            // restores from it
  std::chrono::steady_clock::time_point created;
  std::chrono::steady_clock::time_point used;  // last
};

class SnapshotStore : public Reclaimer {
 public:
  static constexpr int kEvictionCandidates = 16;

  SnapshotStore(HybridCache& cache, StoreOptions options);  // becomes the cache's reclaimer
  ~SnapshotStore() override;                                // REQUIRES: no lease is left
  SnapshotStore(const SnapshotStore&) = delete;
  SnapshotStore& operator=(const SnapshotStore&) = delete;

  // The result of Restore, without counting as use.
  Probed Probe(std::string_view isolation, std::span<const TokenId> tokens);

  // Puts `sequence` at the deepest offset < tokens.size() that a known prefix can be restored at: a prompt
  // that matches fully still evaluates its last token. The lease keeps what the sequence then stands on.
  // `owner`: for whom. REQUIRES: no step and no draft is open on the sequence.
  Restored Restore(std::string_view isolation, std::span<const TokenId> tokens, Sequence& sequence,
                   std::string_view owner = {});

  // Keeps the snapshot [_, to) of the first `to` tokens. Splits an edge where the tokens diverge or end; a
  // node that is already there takes over state that it lacks. `user_point` makes the node resist merging.
  // `owner`: for whom it is kept. kOutOfPages: no room within the budget (names budget, held and demand);
  // kUnsupported: not whole() or not exact(); kOutOfSlots: no room for its state as the store has it;
  // kInvalid: empty, or fewer tokens than it spans (with look-ahead it takes one more). kOutOfMemory.
  Result<Lease> Insert(std::string_view isolation, std::span<const TokenId> tokens, Snapshot snapshot,
                       bool user_point = false, std::string_view owner = {});

  // The snapshot that has the KV of all these tokens; its state too, where it ends with them. Null: none.
  // Valid until the store changes. With look-ahead there is none.
  const Snapshot* Find(std::string_view isolation, std::span<const TokenId> tokens) const;

  // For a prefix that comes back from a lower tier (promotion.h): HybridCache::Import of [from, to) behind
  // what the store has of these tokens. kInvalid: it has fewer than `from` of them.
  Result<Snapshot> ImportBehind(std::string_view isolation, std::span<const TokenId> tokens, Position from,
                                Position to, const std::function<void(const Snapshot::Part&)>& fill);
  // Insert() of what was filled meanwhile; false: there is no room.
  bool Promote(std::string_view isolation, std::span<const TokenId> tokens, Snapshot snapshot,
               std::string_view owner = {});

  // What runs for an owner, and takes memory beside its nodes; nobody's where there is no memory for one more
  // owner. The store outlives it.
  OwnerShares::Claim EnterRunning(std::string_view owner);
  const OwnerShares& owners() const { return owners_; }

  // Moves the time of use on. Restore does too; what is inserted between two moments is equally old, and goes
  // by depth.
  void AdvanceClock() { ++clock_; }

  // Evicts until the cache has room for the demand, or nothing helps any more.
  void Reclaim(const Demand& demand) override;
  void set_budget(size_t bytes);  // evicts down to it, as far as leases let it
  void Clear();                   // all that is not leased

  StoreStats stats() const;
  // Every node with the tokens of its path (with look-ahead one more than it spans). For tools and tests.
  void ForEachNode(const std::function<void(std::string_view isolation, const std::vector<TokenId>& path,
                                            const Snapshot& snapshot)>& visit) const;
  // The nodes of one isolation key, or of all others, parents before children. For views; linear in the pages
  // of the nodes.
  void VisitNodes(std::string_view isolation, const std::function<void(const NodeView&)>& visit) const;
  void VisitNodesOfOthers(std::string_view isolation,
                          const std::function<void(const NodeView&)>& visit) const;
  size_t NodesOf(std::string_view isolation) const;
  // The tokens that follow the first `at` of `tokens` in the prefix that was used last, at most `limit`.
  // REQUIRES: at <= Probe().matched.
  std::vector<TokenId> Continuation(std::string_view isolation, std::span<const TokenId> tokens, Position at,
                                    size_t limit);
  // Grows with everything that a view shows but ages.
  uint64_t changes() const { return changes_; }
  // changes() when the nodes of one isolation key last changed; 0: it has none.
  uint64_t ChangesOf(std::string_view isolation) const;
  std::expected<void, std::string> CheckInvariants() const;

 private:
  friend class Lease;
  struct StoreEntry;
  struct Tree;
  // Last use, then depth, then size, then age of the node: the order of candidates, and of equal costs.
  using EvictionKey = std::tuple<uint64_t, Position, int64_t, uint64_t>;
  using EvictionQueue = std::map<EvictionKey, PrefixNode*>;
  struct RestorePoint {
    PrefixNode* node = nullptr;
    Position offset = 0;
  };

  static StoreEntry& EntryOf(PrefixNode* node);
  static const StoreEntry& EntryOf(const PrefixNode* node);
  Tree* FindTree(std::string_view isolation);
  const Tree* FindTree(std::string_view isolation) const;
  void VisitTree(const Tree& tree, const std::function<void(const NodeView&)>& visit) const;
  Tree& MakeTree(std::string_view isolation);
  void DropIfEmpty(Tree& tree);

  RestorePoint DeepestRestorable(PrefixNode* node, Position limit) const;
  MissReason ClassifyMiss(std::string_view isolation, std::span<const TokenId> tokens,
                          const PrefixTree::Match& match, Position restorable, Position limit) const;
  void RememberStart(std::string_view isolation, std::span<const TokenId> tokens);

  // Keeps a snapshot that may be kept. Throws std::bad_alloc; then the store holds nothing that nothing
  // needs.
  Result<Lease> InsertInto(Tree& tree, std::span<const TokenId> tokens, Snapshot snapshot, bool user_point,
                           std::string_view owner);
  PrefixNode* AddLeaf(Tree& tree, PrefixNode* parent, std::span<const TokenId> tokens, Snapshot snapshot,
                      OwnerShares::Claim claim);
  PrefixNode* SplitNode(Tree& tree, PrefixNode* node, Position at);
  void MergeNode(PrefixNode* node);
  void RemoveLeaf(PrefixNode* node);
  void FillMissingState(PrefixNode* node, const Snapshot& snapshot);

  // Eviction (eviction.cc).
  bool Evictable(const PrefixNode* node) const;
  void Requeue(PrefixNode* node);  // after anything that its place in the order depends on has changed
  void Unqueue(PrefixNode* node);
  void Touch(PrefixNode* node, std::string_view owner);
  void Evict(PrefixNode* node);
  Position TokensToRecompute(const PrefixNode* node) const;
  double CostOfLoss(const PrefixNode* node) const;
  // Evicts while `wanting` says so, of the nodes that `helps` accepts first those that are not spared. False:
  // nothing more can be evicted.
  template <class Wanting, class Helpful>
  bool EvictWhile(const Wanting& wanting, const Helpful& helps);
  // The cheapest of the candidates that `helps` accepts, from `at` on; null: none. Moves `at` to the first of
  // them.
  template <class Helpful>
  PrefixNode* CheapestToLose(EvictionQueue::iterator* at, const Helpful& helps);
  void PruneUpwards(
      PrefixNode* node);  // merges or removes a node that nothing needs any more, and so on upwards
  bool Helps(const PrefixNode* node, const Demand& demand) const;
  template <class Missing>
  bool MakeRoom(const Missing& missing_bytes);
  void Pin(PrefixNode* node,
           int change);  // keeps the node and its tree while an operation is at work on them
  Lease NewLease(std::unique_ptr<Lease::Record> record, PrefixNode* node, Position offset);
  void EndLease(Lease::Record& record);
  using Owned = std::unordered_map<const OwnerShares::Share*, size_t>;
  std::expected<void, std::string> CheckTree(Tree& tree, StoreAccounting* bytes, Owned* owned, size_t* leases,
                                             size_t* queued) const;

  HybridCache& cache_;
  StoreOptions options_;
  StoreAccounting bytes_;
  OwnerShares owners_;  // outlives the nodes
  std::unordered_map<std::string, std::unique_ptr<Tree>, TransparentHash, std::equal_to<>> trees_;
  EvictionQueue queue_;
  uint64_t clock_ = 0;
  uint64_t changes_ = 0;
  uint64_t next_id_ = 0;
  size_t nodes_ = 0;
  size_t leases_ = 0;
  // First tokens ever inserted, for miss reasons only: by whom first, and by each key.
  std::unordered_map<uint64_t, uint64_t> starts_;
  std::unordered_set<uint64_t> own_starts_;
  StoreStats counters_;
};

}  // namespace quire::cache
