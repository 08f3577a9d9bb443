// The tokens of a vocabulary by their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "api/base/ids.h"

namespace quire::runner::constraint {

// A set of token ids.
class TokenMask {
 public:
  explicit TokenMask(int32_t vocabulary = 0) : words_((static_cast<size_t>(vocabulary) + 63) / 64) {}
  void Clear() { words_.assign(words_.size(), 0); }
  void Set(api::TokenId id) {
    words_[static_cast<size_t>(id) / 64] |= uint64_t{1} << static_cast<size_t>(id) % 64;
  }
  void Reset(api::TokenId id) {
    words_[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << static_cast<size_t>(id) % 64);
  }
  bool Has(api::TokenId id) const {
    const auto word = static_cast<size_t>(id) / 64;
    return id >= 0 && word < words_.size() && (words_[word] >> static_cast<size_t>(id) % 64 & 1U) != 0;
  }
  void Add(const TokenMask& other);
  size_t Count() const;
  std::vector<api::TokenId> Ids() const;
  std::span<const uint64_t> words() const { return words_; }  // bit i of word w: token 64 w + i

 private:
  std::vector<uint64_t> words_;
};

// Immutable. Nodes lie in preorder: a node's descendants follow it up to skip(node).
class TokenTrie {
 public:
  struct Token {
    api::TokenId id = 0;
    std::string_view bytes;  // not empty
  };
  TokenTrie() = default;
  explicit TokenTrie(std::vector<Token> tokens);

  uint32_t size() const { return static_cast<uint32_t>(bytes_.size()); }  // nodes; the root is none of them
  uint8_t byte(uint32_t node) const { return bytes_[node]; }
  uint32_t depth(uint32_t node) const { return depths_[node]; }  // from 1
  uint32_t depth_max() const { return depth_max_; }
  uint32_t skip(uint32_t node) const { return skips_[node]; }
  std::span<const api::TokenId> tokens(uint32_t node) const {
    return std::span(tokens_).subspan(token_begin_[node], token_begin_[node + 1] - token_begin_[node]);
  }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> depths_;
  std::vector<uint32_t> skips_;
  std::vector<uint32_t> token_begin_;  // [nodes + 1]
  std::vector<api::TokenId> tokens_;
  uint32_t depth_max_ = 0;
};

// The vocabulary as constraints use it, prepared once per model. Immutable, any thread.
//
// Special tokens are in it under SpecialTokenBytes(); tokens that stand for nothing, or for bytes that no
// text has, are not in it. Plain tokens are those whose bytes are whole characters that stand for themselves
// in a JSON string: where a state takes any such character, they need no walk.
class VocabularyIndex {
 public:
  using BytesOf = std::function<std::string_view(api::TokenId)>;
  using IsSpecial = std::function<bool(api::TokenId)>;
  VocabularyIndex(int32_t size, const BytesOf& bytes_of, const IsSpecial& is_special,
                  const std::unordered_set<api::TokenId>& end_of_generation);

  int32_t size() const { return size_; }
  // Empty for tokens that are not in it.
  std::string_view Bytes(api::TokenId id) const;
  // The bytes that lead to a node of one of the tries.
  std::string_view PathTo(const TokenTrie& trie, uint32_t node) const;
  bool EndsGeneration(api::TokenId id) const { return end_.contains(id); }
  const std::vector<api::TokenId>& eos_tokens() const { return eos_tokens_; }

  const TokenTrie& all() const { return all_; }
  const TokenTrie& other() const { return other_; }  // tokens that are not plain
  // Plain tokens of at most this many characters.
  static constexpr size_t kPlainLengths = 64;  // characters; longer tokens are not plain
  const TokenMask& PlainUpTo(size_t characters) const;

 private:
  int32_t size_;
  std::string pool_;
  std::vector<uint32_t> begin_;  // [size + 1] into pool_
  std::unordered_set<api::TokenId> end_;
  std::vector<api::TokenId> eos_tokens_;
  TokenTrie all_;
  TokenTrie other_;
  std::vector<TokenMask> plain_;  // [characters]
};

}  // namespace quire::runner::constraint
