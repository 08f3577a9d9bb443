#include "runner/constraint/item_sets.h"

#include <algorithm>

namespace quire::runner::constraint {

uint32_t ItemSets::Child(uint32_t node, uint8_t byte) const {
  const auto edges = EdgesOf(node);
  const auto found = std::ranges::find(edges, byte, &Edge::byte);
  return found == edges.end() ? 0 : found->to;
}

ListItems ItemSets::InsertLast(ListItems items) {
  if (items.last == 0) return items;
  items.set = Insert(items.set, items.last);
  items.last = 0;
  return items;
}

ListItems ItemSets::Write(ListItems items, uint8_t byte) {
  if (items.written == 0) {
    items = InsertLast(items);
    items.node = items.set;
  }
  items.node = Child(items.node, byte);
  texts_.push_back({items.written, byte});
  items.written = static_cast<uint32_t>(texts_.size() - 1);
  return items;
}

void ItemSets::Rewind(const Mark& mark) {
  nodes_.resize(mark.nodes);
  edges_.resize(mark.edges);
  texts_.resize(mark.texts);
}

uint32_t ItemSets::Add(uint32_t node, uint8_t byte, uint32_t child) {
  Node copy = nodes_[node];
  const uint32_t from = copy.edges;
  copy.edges = static_cast<uint32_t>(edges_.size());
  ++copy.count;
  bool replaced = child == 0;
  for (uint32_t i = 0; i < copy.children; ++i) {
    Edge edge = edges_[from + i];
    if (child != 0 && edge.byte == byte) {
      edge.to = child;
      replaced = true;
    }
    edges_.push_back(edge);
  }
  if (!replaced) {
    edges_.push_back({byte, child});
    ++copy.children;
  }
  copy.item |= child == 0;
  nodes_.push_back(copy);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t ItemSets::Insert(uint32_t set, uint32_t text) {
  spelled_.clear();
  for (; text != 0; text = texts_[text].before) spelled_ += static_cast<char>(texts_[text].byte);
  path_.assign(1, set);
  for (size_t i = spelled_.size(); i-- > 0;) {
    path_.push_back(Child(path_.back(), static_cast<uint8_t>(spelled_[i])));
  }
  uint32_t node = Add(path_.back(), 0, 0);
  for (size_t i = 0; i < spelled_.size(); ++i) {
    node = Add(path_[spelled_.size() - 1 - i], static_cast<uint8_t>(spelled_[i]), node);
  }
  return node;
}

}  // namespace quire::runner::constraint
