// Byte strings by their beginnings: every string added leads to a node, and so does each of its beginnings.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <string_view>

namespace quire::runner::tokenizer {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = 0;  // the root is nobody's child

  // The node of this text, new or not. Nodes are numbered in the order in which they come.
  uint32_t Add(std::string_view text) {
    uint32_t node = kRoot;
    for (const char byte : text) {
      const auto [child, is_new] = children_.emplace(Edge(node, byte), nodes_);
      if (is_new) ++nodes_;
      node = child->second;
    }
    return node;
  }
  uint32_t Child(uint32_t node, char byte) const {
    const auto found = children_.find(Edge(node, byte));
    return found == children_.end() ? kNone : found->second;
  }
  uint32_t nodes() const { return nodes_; }

 private:
  static uint64_t Edge(uint32_t node, char byte) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  boost::unordered_flat_map<uint64_t, uint32_t> children_;  // by Edge()
  uint32_t nodes_ = 1;
};

}  // namespace quire::runner::tokenizer
