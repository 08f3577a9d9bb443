#include "runner/tokenizer/bpe.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <queue>

#include "api/base/utf8.h"
#include "runner/tokenizer/byte_tokens.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
// Up to here a scan for the best pair beats a heap.
constexpr size_t kShortPiece = 32;

struct MergeTarget {
  uint32_t rank = kNoRank;
  TokenId merged = kNoToken;
};

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32U | static_cast<uint32_t>(right);
}

}  // namespace

struct BpeModel::Tables {
  BpeDefinition definition;
  boost::unordered_flat_map<uint64_t, MergeTarget> merges;
  boost::unordered_flat_map<std::string_view, TokenId> whole_pieces;  // views into definition

  MergeTarget Find(TokenId left, TokenId right) const {
    const auto found = merges.find(PairKey(left, right));
    return found == merges.end() ? MergeTarget{} : found->second;
  }

  // The initial tokens of a piece, left to right. Not more tokens than bytes.
  template <class Append>
  void ForEachStartToken(std::string_view piece, Append append) const {
    bool after_unknown = false;
    const auto add = [&](TokenId token) {
      if (token != kNoToken) {
        append(token);
      } else if (definition.unknown != kNoToken && !(after_unknown && definition.fuse_unknown)) {
        append(definition.unknown);
      }
      after_unknown = token == kNoToken;
    };
    if (!definition.character_tokens) {
      for (const char c : piece) add(definition.byte_tokens[static_cast<uint8_t>(c)]);
      return;
    }
    for (size_t at = 0; at < piece.size();) {
      const size_t length = api::CodePointAt(piece, at).bytes;
      const auto known = definition.character_tokens->find(api::CodePointAt(piece, at).value);
      if (known != definition.character_tokens->end()) {
        add(known->second);
      } else {
        AddBytes(definition.byte_tokens, piece.substr(at, length), add);
      }
      at += length;
    }
  }

  bool IsBare(TokenId token) const {
    return !definition.bare_characters.empty() && token >= definition.bare_begin;
  }

  // Tokens of the piece that begins at `begin`, of which bare characters become their bytes' tokens.
  void ExpandBare(std::vector<TokenId>& ids, size_t begin) const {
    if (std::none_of(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(),
                     [this](TokenId token) { return IsBare(token); })) {
      return;
    }
    const std::vector<TokenId> tokens(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
    ids.resize(begin);
    const auto add = [&](TokenId token) {
      if (token != kNoToken) return ids.push_back(token);
      const bool fused = definition.fuse_unknown && ids.size() > begin && ids.back() == definition.unknown;
      if (definition.unknown != kNoToken && !fused) ids.push_back(definition.unknown);
    };
    for (const TokenId token : tokens) {
      if (!IsBare(token)) {
        add(token == definition.unknown ? kNoToken : token);
      } else {
        const auto index = static_cast<size_t>(token - definition.bare_begin);
        AddBytes(definition.byte_tokens, definition.bare_characters[index], add);
      }
    }
  }

  void EncodeShort(std::string_view piece, std::vector<TokenId>& ids) const;
  void EncodeLong(std::string_view piece, std::vector<TokenId>& ids) const;
};

void BpeModel::Tables::EncodeShort(std::string_view piece, std::vector<TokenId>& ids) const {
  std::array<TokenId, kShortPiece> tokens{};
  std::array<MergeTarget, kShortPiece> targets{};  // of tokens[i] and tokens[i + 1]
  size_t count = 0;
  ForEachStartToken(piece, [&](TokenId token) { tokens[count++] = token; });
  for (size_t i = 0; i + 1 < count; ++i) targets[i] = Find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (targets[i].rank < targets[best].rank) best = i;
    }
    if (targets[best].rank == kNoRank) break;
    tokens[best] = targets[best].merged;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      tokens[i] = tokens[i + 1];
      targets[i] = targets[i + 1];
    }
    --count;
    targets[best] = best + 1 < count ? Find(tokens[best], tokens[best + 1]) : MergeTarget{};
    if (best > 0) targets[best - 1] = Find(tokens[best - 1], tokens[best]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

// A linked list of symbols and a heap of the pairs that merge, by rank and then position. An entry of the
// heap is stale when the rank of the pair at its position is no longer the entry's.
void BpeModel::Tables::EncodeLong(std::string_view piece, std::vector<TokenId>& ids) const {
  struct Symbol {
    TokenId token = 0;
    uint32_t previous = kEnd;
    uint32_t next = kEnd;
    uint32_t rank = kNoRank;  // of the merge with `next`
  };
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  ForEachStartToken(piece, [&](TokenId token) {
    const auto at = static_cast<uint32_t>(symbols.size());
    symbols.push_back({.token = token, .previous = at == 0 ? kEnd : at - 1, .next = at + 1});
  });
  if (symbols.empty()) return;
  symbols.back().next = kEnd;

  const auto entry = [](uint32_t rank, uint32_t at) { return static_cast<uint64_t>(rank) << 32U | at; };
  std::vector<uint64_t> initial;
  initial.reserve(symbols.size());
  for (uint32_t at = 0; at + 1 < symbols.size(); ++at) {
    symbols[at].rank = Find(symbols[at].token, symbols[at + 1].token).rank;
    if (symbols[at].rank != kNoRank) initial.push_back(entry(symbols[at].rank, at));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(std::greater<>(),
                                                                            std::move(initial));
  const auto update = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next == kEnd ? kNoRank : Find(symbol.token, symbols[symbol.next].token).rank;
    if (symbol.rank != kNoRank) heap.push(entry(symbol.rank, at));
  };
  while (!heap.empty()) {
    CountWork(4);
    const auto rank = static_cast<uint32_t>(heap.top() >> 32U);
    const auto at = static_cast<uint32_t>(heap.top());
    heap.pop();
    Symbol& left = symbols[at];
    if (left.rank != rank) continue;
    Symbol& right = symbols[left.next];
    left.token = Find(left.token, right.token).merged;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next != kEnd) symbols[left.next].previous = at;
    update(at);
    if (left.previous != kEnd) update(left.previous);
  }
  for (uint32_t at = 0; at != kEnd; at = symbols[at].next) ids.push_back(symbols[at].token);
}

BpeModel::BpeModel(BpeDefinition definition) {
  auto tables = std::make_unique<Tables>();
  tables->definition = std::move(definition);
  tables->merges.reserve(tables->definition.merges.size());
  const std::vector<uint32_t>& ranks = tables->definition.ranks;
  uint32_t position = 0;
  for (const Merge& merge : tables->definition.merges) {
    const uint32_t rank = ranks.empty() ? position : ranks[position];
    tables->merges.insert_or_assign(PairKey(merge.left, merge.right), MergeTarget{rank, merge.merged});
    ++position;
  }
  tables->definition.merges = {};
  tables->definition.ranks = {};
  tables->whole_pieces.reserve(tables->definition.whole_pieces.size());
  for (const auto& [bytes, token] : tables->definition.whole_pieces)
    tables->whole_pieces.emplace(bytes, token);
  tables_ = std::move(tables);
}

BpeModel::~BpeModel() = default;

void BpeModel::Encode(std::string_view piece, std::vector<api::TokenId>& ids) const {
  const auto whole = tables_->whole_pieces.find(piece);
  if (whole != tables_->whole_pieces.end()) {
    ids.push_back(whole->second);
    return;
  }
  const size_t begin = ids.size();
  if (piece.size() <= kShortPiece) {
    tables_->EncodeShort(piece, ids);
  } else {
    tables_->EncodeLong(piece, ids);
  }
  if (!tables_->definition.bare_characters.empty()) tables_->ExpandBare(ids, begin);
}

}  // namespace quire::runner::tokenizer
