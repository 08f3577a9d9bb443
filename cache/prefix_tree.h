// Compressed trie over token ids: which prefixes are known. It knows tokens only; what a node stands for is
// its value.
//
// With look-ahead (for draft heads whose entry at a position pairs that token with the next) the key at
// position i is the pair (token i, token i + 1), so that n tokens make n - 1 keys and an entry matches only
// if both tokens do.
//
// Invariants
// - A node spans keys [from, to), from < to; a child's from is its parent's to; the root spans [0, 0).
// - Siblings never share a first key: not a first token, with look-ahead not a first pair.
// - Nodes keep their address while they live. The lower half of a split is the old node; when a parent
//   merges with its only child, the child lives on.
//
// Splitting and adding throw std::bad_alloc, changing nothing. Merging, removing and destroying need no
// memory.
//
// Costs: matching is linear in the matched tokens; splitting and merging do not depend on an edge's length
// beyond one handle per TokenRun::kChunk tokens. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/token_run.h"
#include "cache/types.h"

namespace quire::cache {

// The value that the owner of a tree stores at a node.
struct NodeValue {
  virtual ~NodeValue() = default;
};

struct PrefixNode {
  using Key = uint64_t;

  PrefixNode* parent = nullptr;
  Position from = 0;
  Position to = 0;
  TokenRun run;  // to - from tokens, and with look-ahead one more
  std::map<Key, std::unique_ptr<PrefixNode>> children;
  std::unique_ptr<NodeValue> value;

  PrefixNode* only_child() const { return children.size() == 1 ? children.begin()->second.get() : nullptr; }
};

class PrefixTree {
 public:
  explicit PrefixTree(bool lookahead = false) : lookahead_(lookahead) {}
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The deepest node whose edge the tokens enter, and how far they agree: matched is in (node->from,
  // node->to], or 0 at the root.
  struct Match {
    PrefixNode* node = nullptr;
    Position matched = 0;
  };
  Match Find(std::span<const TokenId> tokens);

  // Keys that `tokens` make: tokens.size(), less one with look-ahead (0 where there are none).
  Position Keys(std::span<const TokenId> tokens) const;
  // Key of the edge that continues at position `at` < Keys(tokens).
  PrefixNode::Key KeyAt(std::span<const TokenId> tokens, Position at) const;

  // Cuts the node's edge at `at`, from < at < to: returns the new upper node [from, at), which has no value;
  // the node becomes its only child [at, to).
  PrefixNode* Split(PrefixNode* node, Position at);
  // The same in two: what may fail, and what cannot. REQUIRES: the tree did not change in between.
  struct PlannedSplit {
    PrefixNode* node = nullptr;
    std::unique_ptr<PrefixNode> upper;
  };
  PlannedSplit PlanSplit(PrefixNode* node, Position at);
  PrefixNode* Split(PlannedSplit plan) noexcept;
  // Adds a leaf [parent->to, to) for `tokens`. REQUIRES: parent->to < to <= Keys(tokens), the tokens agree
  // with the path to `parent`, and no child begins with the same key.
  PrefixNode* AddLeaf(PrefixNode* parent, std::span<const TokenId> tokens, Position to);
  // The node's only child takes over its edge; the node is gone. REQUIRES: an only child, not the root.
  void MergeIntoChild(PrefixNode* node);
  // REQUIRES: no children, not the root.
  void RemoveLeaf(PrefixNode* node);

  PrefixNode* root() { return &root_; }
  const PrefixNode* root() const { return &root_; }
  PrefixNode::Key FirstKey(const PrefixNode& node) const;
  size_t nodes() const { return nodes_; }  // without the root
  // All tokens of the path down to `node` (with look-ahead one more than node->to).
  std::vector<TokenId> Path(const PrefixNode* node) const;

  std::expected<void, std::string> CheckInvariants() const;

 private:
  std::unique_ptr<PrefixNode>& SlotOf(PrefixNode* node);

  const bool lookahead_;
  PrefixNode root_;
  size_t nodes_ = 0;
};

}  // namespace quire::cache
