// Finds the ends of many strings in a text in one pass (Aho-Corasick over bytes).
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::runner::sampler {

// Immutable; any thread. Time: linear in the text, whatever the number of strings. A node is a beginning of a
// string: the longest one that the text so far ends with.
class ByteAutomaton {
 public:
  static constexpr int32_t kRoot = 0;   // the node of no text
  static constexpr int32_t kNone = -1;  // no string

  // Empty strings never match.
  explicit ByteAutomaton(std::vector<std::string> strings);

  const std::vector<std::string>& strings() const { return strings_; }
  // The node after one more byte.
  int32_t Next(int32_t node, uint8_t byte) const;
  // The text of a node, and its length in bytes.
  std::string_view Path(int32_t node) const;
  size_t Depth(int32_t node) const { return At(node).depth; }
  // The index of the longest string that ends here, of equal ones the first, or kNone.
  int32_t Longest(int32_t node) const { return At(node).longest; }
  // The length of the shortest string that ends here, or 0.
  size_t ShortestLength(int32_t node) const { return At(node).shortest; }

 private:
  struct Node {
    int32_t parent = kRoot;
    int32_t fail = kRoot;     // the longest proper suffix of the path that is a path too
    uint32_t depth = 0;       // bytes of the path
    uint32_t through = 0;     // a string that begins with the path
    int32_t longest = kNone;  // the longest string that the path ends with
    uint32_t shortest = 0;    // the bytes of the shortest one
  };

  const Node& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  int32_t Child(int32_t node, uint8_t byte) const;
  void Insert(uint32_t index);
  void Link();

  std::vector<std::string> strings_;
  std::vector<Node> nodes_{Node{}};
  boost::unordered_flat_map<uint64_t, int32_t> children_;  // node << 8 | byte
};

}  // namespace quire::runner::sampler
