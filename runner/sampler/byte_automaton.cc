#include "runner/sampler/byte_automaton.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace quire::runner::sampler {

ByteAutomaton::ByteAutomaton(std::vector<std::string> strings) : strings_(std::move(strings)) {
  size_t bytes = 0;
  for (const std::string& string : strings_) bytes += string.size();
  nodes_.reserve(bytes + 1);
  children_.reserve(bytes);
  for (uint32_t i = 0; i < strings_.size(); ++i) Insert(i);
  Link();
}

int32_t ByteAutomaton::Child(int32_t node, uint8_t byte) const {
  const auto found = children_.find(static_cast<uint64_t>(node) << 8U | byte);
  return found == children_.end() ? kNone : found->second;
}

int32_t ByteAutomaton::Next(int32_t node, uint8_t byte) const {
  while (true) {
    const int32_t child = Child(node, byte);
    if (child != kNone) return child;
    if (node == kRoot) return kRoot;
    node = At(node).fail;
  }
}

std::string_view ByteAutomaton::Path(int32_t node) const {
  if (node == kRoot) return {};
  return std::string_view(strings_[At(node).through]).substr(0, At(node).depth);
}

void ByteAutomaton::Insert(uint32_t index) {
  int32_t node = kRoot;
  for (const char c : strings_[index]) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = Child(node, byte);
    if (child == kNone) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.parent = node, .depth = At(node).depth + 1, .through = index});
      children_.emplace(static_cast<uint64_t>(node) << 8U | byte, child);
    }
    node = child;
  }
  Node& end = nodes_[static_cast<size_t>(node)];
  if (node == kRoot || end.longest != kNone) return;
  end.longest = static_cast<int32_t>(index);
  end.shortest = end.depth;
}

// Shallow nodes first: a link leads to a shorter path.
void ByteAutomaton::Link() {
  uint32_t deepest = 0;
  for (const Node& node : nodes_) deepest = std::max(deepest, node.depth);
  std::vector<size_t> places(deepest + 2);  // of the depths, then of the next node of each
  for (const Node& node : nodes_) ++places[node.depth + 1];
  std::partial_sum(places.begin(), places.end(), places.begin());
  std::vector<int32_t> order(nodes_.size());
  for (size_t id = 0; id < nodes_.size(); ++id) order[places[nodes_[id].depth]++] = static_cast<int32_t>(id);
  for (const int32_t id : order) {
    Node& node = nodes_[static_cast<size_t>(id)];
    if (node.depth > 1) {
      node.fail = Next(At(node.parent).fail, static_cast<uint8_t>(strings_[node.through][node.depth - 1]));
    }
    const Node& suffix = At(node.fail);
    if (node.longest == kNone) node.longest = suffix.longest;
    if (suffix.shortest > 0) node.shortest = suffix.shortest;
  }
}

}  // namespace quire::runner::sampler
