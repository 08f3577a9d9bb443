#include "runner/sampler/stop_matcher.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <numeric>

namespace quire::runner::sampler {
namespace {

constexpr int32_t kRoot = 0;
constexpr int32_t kNone = -1;

}  // namespace

// Aho-Corasick over bytes.
struct StopMatcher::Automaton {
  struct Node {
    int32_t parent = kRoot;
    int32_t fail = kRoot;   // the longest proper suffix of the path that is a path too
    uint32_t depth = 0;     // bytes of the path
    uint32_t through = 0;   // a stop string that begins with the path
    int32_t match = kNone;  // the longest stop string that the path ends with
  };
  std::vector<std::string> strings;
  std::vector<Node> nodes{Node{}};
  boost::unordered_flat_map<uint64_t, int32_t> children;  // node << 8 | byte

  const Node& At(int32_t node) const { return nodes[static_cast<size_t>(node)]; }

  int32_t Child(int32_t node, uint8_t byte) const {
    const auto found = children.find(static_cast<uint64_t>(node) << 8U | byte);
    return found == children.end() ? kNone : found->second;
  }

  int32_t Next(int32_t node, uint8_t byte) const {
    while (true) {
      const int32_t child = Child(node, byte);
      if (child != kNone) return child;
      if (node == kRoot) return kRoot;
      node = At(node).fail;
    }
  }

  std::string_view Path(int32_t node) const {
    if (node == kRoot) return {};
    return std::string_view(strings[At(node).through]).substr(0, At(node).depth);
  }

  void Insert(uint32_t index) {
    int32_t node = kRoot;
    for (const char c : strings[index]) {
      const auto byte = static_cast<uint8_t>(c);
      int32_t child = Child(node, byte);
      if (child == kNone) {
        child = static_cast<int32_t>(nodes.size());
        nodes.push_back({.parent = node, .depth = At(node).depth + 1, .through = index});
        children.emplace(static_cast<uint64_t>(node) << 8U | byte, child);
      }
      node = child;
    }
    int32_t& match = nodes[static_cast<size_t>(node)].match;
    if (node != kRoot && match == kNone) match = static_cast<int32_t>(index);
  }

  // Shallow nodes first: a link leads to a shorter path.
  void Link() {
    std::vector<int32_t> order(nodes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return At(a).depth < At(b).depth; });
    for (const int32_t id : order) {
      Node& node = nodes[static_cast<size_t>(id)];
      if (node.depth > 1) {
        node.fail = Next(At(node.parent).fail, static_cast<uint8_t>(strings[node.through][node.depth - 1]));
      }
      if (node.match == kNone) node.match = At(node.fail).match;
    }
  }
};

StopMatcher::StopMatcher(const std::vector<std::string>& stop_strings) {
  auto automaton = std::make_shared<Automaton>();
  automaton->strings = stop_strings;
  for (uint32_t i = 0; i < stop_strings.size(); ++i) automaton->Insert(i);
  automaton->Link();
  automaton_ = std::move(automaton);
}

StopMatcher::Emission StopMatcher::Feed(std::string_view text) {
  if (stopped_) return {};
  const std::string_view held = automaton_->Path(node_);
  // The first `length` bytes of what was held and the text. Bytes that stay held are not touched again.
  const auto first = [&](size_t length) {
    std::string emitted(held.substr(0, length));
    return emitted.append(text.substr(0, length - emitted.size()));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    node_ = automaton_->Next(node_, static_cast<uint8_t>(text[i]));
    const int32_t match = automaton_->At(node_).match;
    if (match == kNone) continue;
    const auto index = static_cast<size_t>(match);
    stopped_ = true;
    node_ = kRoot;
    return {.text = first(held.size() + i + 1 - automaton_->strings[index].size()), .stop = index};
  }
  return {.text = first(held.size() + text.size() - automaton_->At(node_).depth), .stop = std::nullopt};
}

std::string StopMatcher::Flush() {
  std::string held(automaton_->Path(node_));
  node_ = kRoot;
  return held;
}

}  // namespace quire::runner::sampler
