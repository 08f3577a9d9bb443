// Texts of the items that a list has so far, where all of them must differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace quire::runner::constraint {

// The items of the list that a parse state is in. The default is an empty list, also for parse states outside
// of such lists.
struct ListItems {
  uint32_t set = 0;      // of the items before
  uint32_t last = 0;     // the item before, when the set does not have it yet
  uint32_t written = 0;  // what is written of the item at hand
  uint32_t node = 0;     // of the set's tree: the items that begin with that; 0: none does
};

// Sets are trees of bytes that share what they have in common; none ever changes, so that ListItems are
// values. All of them live until Rewind() or the end of this object.
class ItemSets {
 public:
  struct Mark {
    size_t nodes = 0, edges = 0, texts = 0;
  };

  // The items of the list after the end of an item.
  static ListItems End(const ListItems& items) {
    return {.set = items.set, .last = items.written, .written = 0, .node = 0};
  }
  // Inserts the last item into the set, ready for the next item.
  ListItems InsertLast(ListItems items);
  // The item goes on, or begins, by a byte.
  ListItems Write(ListItems items, uint8_t byte);

  // Items that the list has; REQUIRES: none is at hand.
  uint32_t Count(const ListItems& items) const { return CountOf(items.set) + (items.last != 0 ? 1U : 0U); }
  // Items with the prefix that is written of the current one.
  uint32_t CountWithPrefix(const ListItems& items) const { return CountOf(items.node); }
  // The list has what is written as an item.
  bool Has(const ListItems& items) const { return nodes_[items.node].item; }

  uint32_t CountOf(uint32_t node) const { return nodes_[node].count; }
  uint32_t Child(uint32_t node, uint8_t byte) const;  // 0: none

  Mark mark() const { return {nodes_.size(), edges_.size(), texts_.size()}; }
  // Forgets what came after the mark. REQUIRES: nobody uses it.
  void Rewind(const Mark& mark);
  size_t used_bytes() const {
    return nodes_.size() * sizeof(Node) + edges_.size() * sizeof(Edge) + texts_.size() * sizeof(Text);
  }
  size_t bytes() const {  // reserved ones included
    return nodes_.capacity() * sizeof(Node) + edges_.capacity() * sizeof(Edge) +
           texts_.capacity() * sizeof(Text);
  }

 private:
  struct Node {
    uint32_t count = 0;  // items at and below it
    uint32_t edges = 0;  // where they begin
    uint16_t children = 0;
    bool item = false;
  };
  struct Edge {
    uint8_t byte = 0;
    uint32_t to = 0;
  };
  struct Text {  // a byte behind another text
    uint32_t before = 0;
    uint8_t byte = 0;
  };

  std::span<const Edge> EdgesOf(uint32_t node) const {
    return std::span(edges_).subspan(nodes_[node].edges, nodes_[node].children);
  }
  // A copy of the node with one item more, which is itself or below `child` by `byte`.
  uint32_t Add(uint32_t node, uint8_t byte, uint32_t child);
  uint32_t Insert(uint32_t set, uint32_t text);

  std::vector<Node> nodes_ = std::vector<Node>(1);  // the first is the empty set
  std::vector<Edge> edges_;
  std::vector<Text> texts_ = std::vector<Text>(1);  // the first is the empty text
  std::string spelled_;                             // of the insertion in hand, backwards
  std::vector<uint32_t> path_;
};

}  // namespace quire::runner::constraint
