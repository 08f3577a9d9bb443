#include "cache/prefix_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cache/check.h"

namespace quire::cache {
namespace {

PrefixNode::Key Pair(TokenId token, TokenId next) {
  return uint64_t{static_cast<uint32_t>(token)} | uint64_t{static_cast<uint32_t>(next)} << 32;
}

}  // namespace

// A path may be too deep to be destroyed by recursion.
PrefixTree::~PrefixTree() {
  PrefixNode* node = &root_;
  while (node != &root_ || !node->children.empty()) {
    if (node->children.empty()) {
      node = node->parent;
      node->children.erase(node->children.begin());  // the one that it came from
    } else {
      node = node->children.begin()->second.get();
    }
  }
}

Position PrefixTree::Keys(std::span<const TokenId> tokens) const {
  const auto size = static_cast<Position>(tokens.size());
  return lookahead_ ? std::max<Position>(0, size - 1) : size;
}

PrefixNode::Key PrefixTree::KeyAt(std::span<const TokenId> tokens, Position at) const {
  const auto i = static_cast<size_t>(at);
  return Pair(tokens[i], lookahead_ ? tokens[i + 1] : 0);
}

PrefixNode::Key PrefixTree::FirstKey(const PrefixNode& node) const {
  return Pair(node.run[0], lookahead_ ? node.run[1] : 0);
}

std::unique_ptr<PrefixNode>& PrefixTree::SlotOf(PrefixNode* node) {
  return node->parent->children.find(FirstKey(*node))->second;
}

PrefixTree::Match PrefixTree::Find(std::span<const TokenId> tokens) {
  const Position keys = Keys(tokens);
  Match match{&root_, 0};
  while (match.matched == match.node->to && match.matched < keys) {
    const auto child = match.node->children.find(KeyAt(tokens, match.matched));
    if (child == match.node->children.end()) break;
    PrefixNode* node = child->second.get();
    const size_t same = node->run.CommonPrefix(tokens.subspan(static_cast<size_t>(match.matched)));
    match = {node, match.matched + static_cast<Position>(same) - (lookahead_ ? 1 : 0)};
  }
  return match;
}

PrefixNode* PrefixTree::Split(PrefixNode* node, Position at) { return Split(PlanSplit(node, at)); }

PrefixTree::PlannedSplit PrefixTree::PlanSplit(PrefixNode* node, Position at) {
  QUIRE_CACHE_CHECK(node->from < at && at < node->to);
  const auto cut = static_cast<size_t>(at - node->from);
  auto upper = std::make_unique<PrefixNode>();
  upper->parent = node->parent;
  upper->from = node->from;
  upper->to = at;
  upper->run = node->run.First(cut + (lookahead_ ? 1 : 0));
  upper->children.emplace(Pair(node->run[cut], lookahead_ ? node->run[cut + 1] : 0), nullptr);
  return {node, std::move(upper)};
}

PrefixNode* PrefixTree::Split(PlannedSplit plan) noexcept {
  PrefixNode* const upper = plan.upper.get();
  std::unique_ptr<PrefixNode>& owner = SlotOf(plan.node);
  std::unique_ptr<PrefixNode> lower = std::exchange(owner, std::move(plan.upper));
  lower->run.DropFirst(static_cast<size_t>(upper->to - upper->from));
  lower->from = upper->to;
  lower->parent = upper;
  upper->children.begin()->second = std::move(lower);
  ++nodes_;
  return upper;
}

PrefixNode* PrefixTree::AddLeaf(PrefixNode* parent, std::span<const TokenId> tokens, Position to) {
  QUIRE_CACHE_CHECK(parent->to < to && to <= Keys(tokens));
  const auto begin = static_cast<size_t>(parent->to);
  auto leaf = std::make_unique<PrefixNode>();
  leaf->parent = parent;
  leaf->from = parent->to;
  leaf->to = to;
  leaf->run = TokenRun(tokens.subspan(begin, static_cast<size_t>(to) - begin + (lookahead_ ? 1 : 0)));
  const auto [at, added] = parent->children.emplace(FirstKey(*leaf), std::move(leaf));
  QUIRE_CACHE_CHECK(added);
  ++nodes_;
  return at->second.get();
}

void PrefixTree::MergeIntoChild(PrefixNode* node) {
  QUIRE_CACHE_CHECK(node->parent != nullptr && node->only_child() != nullptr);
  std::unique_ptr<PrefixNode>& owner = SlotOf(node);
  std::unique_ptr<PrefixNode> child = std::move(node->children.begin()->second);
  TokenRun run = std::move(node->run);
  if (lookahead_) run.DropLast(1);
  run.Append(std::move(child->run));
  child->run = std::move(run);
  child->from = node->from;
  child->parent = node->parent;
  owner = std::move(child);
  --nodes_;
}

void PrefixTree::RemoveLeaf(PrefixNode* node) {
  QUIRE_CACHE_CHECK(node->parent != nullptr && node->children.empty());
  node->parent->children.erase(FirstKey(*node));
  --nodes_;
}

std::vector<TokenId> PrefixTree::Path(const PrefixNode* node) const {
  std::vector<const PrefixNode*> nodes;
  for (; node->parent != nullptr; node = node->parent) nodes.push_back(node);
  std::vector<TokenId> tokens;
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    if (lookahead_ && !tokens.empty()) tokens.pop_back();
    (*at)->run.AppendTo(&tokens);
  }
  return tokens;
}

std::expected<void, std::string> PrefixTree::CheckInvariants() const {
  std::vector<const PrefixNode*> todo = {&root_};
  size_t seen = 0;
  while (!todo.empty()) {
    const PrefixNode* node = todo.back();
    todo.pop_back();
    ++seen;
    for (const auto& [key, child] : node->children) {
      const auto fail = [&](const char* what) {
        return std::unexpected(fmt::format("node [{}, {}): {}", child->from, child->to, what));
      };
      const auto tokens = static_cast<size_t>(child->to - child->from) + (lookahead_ ? 1 : 0);
      if (child->parent != node) return fail("wrong parent");
      if (child->from != node->to || child->from >= child->to) return fail("does not continue its parent");
      if (child->run.size() != tokens) return fail("edge of another length");
      if (FirstKey(*child) != key) return fail("filed under another key");
      if (lookahead_ && node->parent != nullptr && node->run[node->run.size() - 1] != child->run[0]) {
        return fail("does not begin with its parent's look-ahead");
      }
      todo.push_back(child.get());
    }
  }
  if (seen != nodes_ + 1) return std::unexpected(fmt::format("{} nodes, {} counted", seen - 1, nodes_));
  return {};
}

}  // namespace quire::cache
