#include "runner/constraint/token_trie.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "api/base/utf8.h"
#include "runner/constraint/grammar_expr.h"
#include "runner/work/work_budget.h"

namespace quire::runner::constraint {
namespace {

constexpr size_t kTokenBytesMax = 4096;  // longer ones are left out

// The characters of a plain token.
std::optional<size_t> PlainCharacters(std::string_view bytes) {
  size_t characters = 0;
  for (size_t i = 0; i < bytes.size(); ++characters) {
    const api::CodePoint next = api::CodePointAt(bytes, i);
    if (!next.whole() || next.value < 0x20 || next.value == '"' || next.value == '\\') return std::nullopt;
    i += next.bytes;
  }
  return characters;
}

bool IsText(std::string_view bytes) {
  return !bytes.empty() && bytes.size() <= kTokenBytesMax &&
         std::ranges::all_of(bytes, [](char c) { return static_cast<uint8_t>(c) <= kTextByteMax; });
}

}  // namespace

void TokenMask::Add(const TokenMask& other) {
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

size_t TokenMask::Count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

std::vector<api::TokenId> TokenMask::Ids() const {
  std::vector<api::TokenId> ids;
  for (size_t w = 0; w < words_.size(); ++w) {
    for (uint64_t word = words_[w]; word != 0; word &= word - 1) {
      ids.push_back(static_cast<api::TokenId>(w * 64 + static_cast<size_t>(std::countr_zero(word))));
    }
  }
  return ids;
}

TokenTrie::TokenTrie(std::vector<Token> tokens) {
  std::ranges::sort(tokens, [](const Token& a, const Token& b) {
    return a.bytes < b.bytes || (a.bytes == b.bytes && a.id < b.id);
  });
  std::vector<uint32_t> open;  // nodes on the way to the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) skips_[open.back()] = size();
  };
  for (const Token& token : tokens) {
    const size_t shared = static_cast<size_t>(std::ranges::mismatch(last, token.bytes).in1 - last.begin());
    close(shared);
    for (size_t i = shared; i < token.bytes.size(); ++i) {
      open.push_back(size());
      bytes_.push_back(static_cast<uint8_t>(token.bytes[i]));
      depths_.push_back(static_cast<uint16_t>(i + 1));
      skips_.push_back(0);
      token_begin_.push_back(static_cast<uint32_t>(tokens_.size()));
    }
    tokens_.push_back(token.id);
    depth_max_ = std::max(depth_max_, static_cast<uint32_t>(token.bytes.size()));
    last = token.bytes;
  }
  close(0);
  token_begin_.push_back(static_cast<uint32_t>(tokens_.size()));
}

VocabularyIndex::VocabularyIndex(int32_t size, const BytesOf& bytes_of, const IsSpecial& is_special,
                                 const std::unordered_set<api::TokenId>& end_of_generation)
    : size_(size), end_(end_of_generation), eos_tokens_(end_of_generation.begin(), end_of_generation.end()) {
  std::erase_if(eos_tokens_, [size](api::TokenId id) { return id < 0 || id >= size; });
  std::ranges::sort(eos_tokens_);
  for (api::TokenId id = 0; id < size; ++id) {
    CountWork(1);
    begin_.push_back(static_cast<uint32_t>(pool_.size()));
    if (end_.contains(id)) continue;
    if (is_special(id)) {
      pool_ += SpecialTokenBytes(id);
    } else if (const std::string_view bytes = bytes_of(id); IsText(bytes)) {
      pool_ += bytes;
    }
  }
  begin_.push_back(static_cast<uint32_t>(pool_.size()));
  plain_.assign(kPlainLengths + 1, TokenMask(size));
  std::vector<TokenTrie::Token> all;
  std::vector<TokenTrie::Token> other;
  for (api::TokenId id = 0; id < size; ++id) {
    CountWork(1);
    const std::string_view bytes = Bytes(id);
    if (bytes.empty()) continue;
    all.push_back({id, bytes});
    const auto characters = PlainCharacters(bytes);
    if (characters && *characters <= kPlainLengths) {
      for (size_t n = *characters; n <= kPlainLengths; ++n) plain_[n].Set(id);
    } else {
      other.push_back({id, bytes});
    }
  }
  all_ = TokenTrie(std::move(all));
  other_ = TokenTrie(std::move(other));
}

std::string_view VocabularyIndex::Bytes(api::TokenId id) const {
  if (id < 0 || id >= size_) return {};
  const auto at = static_cast<size_t>(id);
  return std::string_view(pool_).substr(begin_[at], begin_[at + 1] - begin_[at]);
}

std::string_view VocabularyIndex::PathTo(const TokenTrie& trie, uint32_t node) const {
  const size_t depth = trie.depth(node);
  while (trie.tokens(node).empty()) ++node;
  return Bytes(trie.tokens(node).front()).substr(0, depth);
}

const TokenMask& VocabularyIndex::PlainUpTo(size_t characters) const {
  return plain_[std::min(characters, kPlainLengths)];
}

}  // namespace quire::runner::constraint
