#include "runner/tokenizer/unigram.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "api/base/utf8.h"
#include "runner/tokenizer/byte_tokens.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;

constexpr int32_t kNone = -1;
// How much worse than the worst entry a character without one is.
constexpr float kUnknownPenalty = 10;

struct Choice {
  float score = 0;        // of the best way to write the piece up to here
  uint32_t begin = 0;     // of its last token
  int32_t entry = kNone;  // kNone: a character that no entry covers
  bool reached = false;
};

}  // namespace

struct UnigramModel::Tables {
  // A trie over the entries' bytes. A node's children lie side by side, by label.
  struct Node {
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t label = 0;
    int32_t entry = kNone;  // that ends here
  };
  UnigramDefinition definition;
  std::vector<Node> nodes = {Node()};
  float unknown_score = 0;

  // The child of `node` with that label; null when there is none.
  const Node* Child(const Node& node, char byte) const {
    const auto label = static_cast<uint8_t>(byte);
    const Node* begin = nodes.data() + node.first_child;
    const Node* end = begin + node.children;
    if (node.children > 4) begin = std::lower_bound(begin, end, label, LabelBelow);
    while (begin != end && begin->label < label) ++begin;
    return begin != end && begin->label == label ? begin : nullptr;
  }
  static bool LabelBelow(const Node& node, uint8_t label) { return node.label < label; }

  void BuildTrie();
  std::vector<Choice> BestChoices(std::string_view piece) const;
};

// Level by level over the sorted entries: a node is a range of them that begin alike.
void UnigramModel::Tables::BuildTrie() {
  const auto& entries = definition.entries;
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](uint32_t i) { return std::string_view(entries[i].text); });
  struct Range {
    size_t begin = 0, end = 0;  // in `order`
  };
  std::vector<Range> ranges = {{0, order.size()}};  // [nodes]
  size_t level_end = 1;
  for (size_t node = 0, depth = 0; node < nodes.size(); ++node) {
    if (node == level_end) {
      ++depth;
      level_end = nodes.size();
    }
    auto [at, end] = ranges[node];
    if (at < end && entries[order[at]].text.size() == depth)
      nodes[node].entry = static_cast<int32_t>(order[at]);
    while (at < end && entries[order[at]].text.size() == depth) ++at;
    nodes[node].first_child = static_cast<uint32_t>(nodes.size());
    while (at < end) {
      const char label = entries[order[at]].text[depth];
      const size_t begin = at;
      while (at < end && entries[order[at]].text[depth] == label) ++at;
      nodes.push_back({.label = static_cast<uint8_t>(label)});
      ranges.push_back({begin, at});
      ++nodes[node].children;
    }
  }
}

// choices[i]: the best way to write the first i bytes, where a character ends there. The float additions and
// the order of comparisons are those of SentencePiece, so that near ties fall as they do there.
std::vector<Choice> UnigramModel::Tables::BestChoices(std::string_view piece) const {
  std::vector<Choice> choices(piece.size() + 1);
  for (size_t begin = 0; begin < piece.size();) {
    CountWork(4);
    const float before = choices[begin].score;
    const size_t length = api::CodePointAt(piece, begin).bytes;
    const auto offer = [&](size_t end, int32_t entry, float score) {
      Choice& choice = choices[end];
      const float sum = score + before;
      if (choice.reached && sum <= choice.score) return;
      choice = {sum, static_cast<uint32_t>(begin), entry, true};
    };
    bool covered = false;
    const Node* node = nodes.data();
    for (size_t at = begin; at < piece.size(); ++at) {
      node = Child(*node, piece[at]);
      if (node == nullptr) break;
      if (node->entry == kNone) continue;
      offer(at + 1, node->entry, definition.entries[static_cast<size_t>(node->entry)].score);
      covered |= at + 1 == begin + length;
    }
    if (!covered) offer(begin + length, kNone, unknown_score);
    begin += length;
  }
  return choices;
}

UnigramModel::UnigramModel(UnigramDefinition definition) {
  auto tables = std::make_unique<Tables>();
  tables->definition = std::move(definition);
  const auto& entries = tables->definition.entries;
  tables->BuildTrie();
  const auto worst = std::ranges::min_element(entries, {}, &UnigramDefinition::Entry::score);
  tables->unknown_score = (worst == entries.end() ? 0.0F : worst->score) - kUnknownPenalty;
  tables_ = std::move(tables);
}

UnigramModel::~UnigramModel() = default;

void UnigramModel::Encode(std::string_view piece, std::vector<TokenId>& ids) const {
  const std::vector<Choice> choices = tables_->BestChoices(piece);
  std::vector<uint32_t> ends;  // of the tokens, last first
  for (size_t end = piece.size(); end > 0; end = choices[end].begin)
    ends.push_back(static_cast<uint32_t>(end));
  bool after_unknown = false;
  const auto add = [&](TokenId token) {
    if (token != kNoToken) {
      ids.push_back(token);
    } else if (tables_->definition.unknown != kNoToken && !after_unknown) {
      ids.push_back(tables_->definition.unknown);
    }
    after_unknown = token == kNoToken;
  };
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Choice& choice = choices[*end];
    if (choice.entry != kNone) {
      add(tables_->definition.entries[static_cast<size_t>(choice.entry)].id);
    } else {
      AddBytes(tables_->definition.byte_tokens, piece.substr(choice.begin, *end - choice.begin), add);
    }
  }
}

}  // namespace quire::runner::tokenizer
