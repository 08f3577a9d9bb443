#include "runner/tokenizer/longest_match.h"

#include <cstdint>
#include <string_view>

#include "runner/tokenizer/byte_trie.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

// 16: none.
unsigned HexDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10 : 16;
}

}  // namespace

std::optional<std::string> UnescapeBytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] == 'x') {
      if (i + 2 >= text.size()) return std::nullopt;
      const unsigned high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
      if (high > 15 || low > 15) return std::nullopt;
      bytes += static_cast<char>(high << 4 | low);
      i += 2;
    } else {
      bytes += text[i] == 't' ? '\t' : text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
    }
  }
  return bytes;
}

struct LongestMatchModel::Trie {
  ByteTrie texts;
  std::vector<api::TokenId> tokens = {kNoToken};  // [nodes]
  api::TokenId unknown = kNoToken;

  void Add(std::string_view bytes, api::TokenId id) {
    const uint32_t node = texts.Add(bytes);
    tokens.resize(texts.nodes(), kNoToken);
    tokens[node] = id;
  }
};

LongestMatchModel::LongestMatchModel(const LongestMatchDefinition& definition) {
  auto trie = std::make_unique<Trie>();
  trie->unknown = definition.unknown;
  for (const LongestMatchDefinition::Entry& entry : definition.entries) {
    if (!entry.bytes.empty()) trie->Add(entry.bytes, entry.id);
  }
  trie_ = std::move(trie);
}

LongestMatchModel::~LongestMatchModel() = default;

void LongestMatchModel::Encode(std::string_view piece, std::vector<api::TokenId>& ids) const {
  for (size_t begin = 0; begin < piece.size();) {
    api::TokenId token = trie_->unknown;
    size_t length = 1, at = begin;
    uint32_t node = ByteTrie::kRoot;
    while (at < piece.size()) {
      node = trie_->texts.Child(node, piece[at++]);
      if (node == ByteTrie::kNone) break;
      if (trie_->tokens[node] == kNoToken) continue;
      token = trie_->tokens[node];
      length = at - begin;
    }
    CountWork(1 + (at - begin) / 8);
    if (token != kNoToken) ids.push_back(token);
    begin += length;
  }
}

}  // namespace quire::runner::tokenizer
