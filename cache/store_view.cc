// What a SnapshotStore holds, for views. Reads only.
#include <algorithm>
#include <deque>
#include <utility>

#include "cache/store_node.h"

namespace quire::cache {

const SnapshotStore::Tree* SnapshotStore::FindTree(std::string_view isolation) const {
  const auto tree = trees_.find(isolation);
  return tree == trees_.end() ? nullptr : tree->second.get();
}

void SnapshotStore::VisitTree(const Tree& tree, const std::function<void(const NodeView&)>& visit) const {
  std::deque<const PrefixNode*> todo = {tree.prefixes.root()};
  while (!todo.empty()) {
    const PrefixNode* node = todo.front();
    todo.pop_front();
    for (const auto& [key, child] : node->children) todo.push_back(child.get());
    if (node->parent == nullptr) continue;
    const StoreEntry& entry = EntryOf(node);
    const StoreEntry* parent = node->parent->parent == nullptr ? nullptr : &EntryOf(node->parent);
    visit({.isolation = tree.isolation,
           .id = entry.id + 1,
           .parent = parent == nullptr ? 0 : parent->id + 1,
           .number = entry.number,
           .parent_number = parent == nullptr ? 0 : parent->number,
           .from = node->from,
           .to = node->to,
           .tokens = node->run,
           .bytes = bytes_.BytesOf(entry.snapshot),
           .restorable = entry.snapshot.whole(),
           .user_point = entry.user_point,
           .leases = entry.leases.size(),
           .evicted_children = entry.ghosts.size(),
           .hits = entry.hits,
           .created = entry.created,
           .used = entry.used});
  }
}

void SnapshotStore::VisitNodes(std::string_view isolation,
                               const std::function<void(const NodeView&)>& visit) const {
  if (const Tree* tree = FindTree(isolation)) VisitTree(*tree, visit);
}

void SnapshotStore::VisitNodesOfOthers(std::string_view isolation,
                                       const std::function<void(const NodeView&)>& visit) const {
  for (const auto& [key, tree] : trees_) {
    if (key != isolation) VisitTree(*tree, visit);
  }
}

size_t SnapshotStore::NodesOf(std::string_view isolation) const {
  const Tree* tree = FindTree(isolation);
  return tree == nullptr ? 0 : tree->prefixes.nodes();
}

uint64_t SnapshotStore::ChangesOf(std::string_view isolation) const {
  const Tree* tree = FindTree(isolation);
  return tree == nullptr ? 0 : tree->changes;
}

std::vector<TokenId> SnapshotStore::Continuation(std::string_view isolation, std::span<const TokenId> tokens,
                                                 Position at, size_t limit) {
  std::vector<TokenId> next;
  Tree* tree = FindTree(isolation);
  if (tree == nullptr) return next;
  const PrefixNode* node = tree->prefixes.Find(tokens.first(static_cast<size_t>(at))).node;
  if (node == nullptr) return next;
  Position position = at;
  while (next.size() < limit) {
    if (position == node->to) {
      const auto latest = std::ranges::max_element(node->children, {}, [](const auto& child) {
        const StoreEntry& entry = EntryOf(child.second.get());
        return std::pair(entry.last_use, entry.id);
      });
      if (latest == node->children.end()) break;
      node = latest->second.get();
    }
    next.push_back(node->run[static_cast<size_t>(position - node->from)]);
    ++position;
  }
  return next;
}

}  // namespace quire::cache
