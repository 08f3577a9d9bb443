#include "runner/tokenizer/least_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "runner/tokenizer/bpe.h"
#include "runner/tokenizer/byte_trie.h"
#include "runner/work/work_budget.h"

namespace quire::runner::tokenizer {
namespace {

constexpr double kCostsPerScore = 1e4;
constexpr int64_t kUnknownCost = 10'000'000;
constexpr int64_t kCostMax = 20'000'000;  // of a piece that is used, exclusive
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

// Bytes of the character that begins here; of a broken one, those that are there.
size_t CharacterBytes(std::string_view rest) {
  const auto lead = static_cast<unsigned char>(rest.front());
  const size_t promised = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  size_t bytes = 1;
  while (bytes < std::min(promised, rest.size()) && ContinuesCharacter(rest[bytes])) ++bytes;
  return bytes;
}

}  // namespace

struct LeastCostModel::Trie {
  struct Piece {
    api::TokenId id = kNoToken;
    int64_t cost = 0;
  };
  ByteTrie texts;
  std::vector<Piece> pieces = {{}};  // [nodes]
  std::array<api::TokenId, 256> bytes = {};

  void Add(std::string_view text, const Piece& piece) {
    const uint32_t node = texts.Add(text);
    pieces.resize(texts.nodes());
    pieces[node] = piece;
  }
};

LeastCostModel::LeastCostModel(const LeastCostDefinition& definition) {
  auto trie = std::make_unique<Trie>();
  trie->bytes = definition.bytes;
  for (const LeastCostDefinition::Entry& entry : definition.entries) {
    const double cost = -std::round(static_cast<double>(entry.score) * kCostsPerScore);
    if (entry.text.empty() || !(std::abs(cost) < static_cast<double>(kCostMax))) continue;
    trie->Add(entry.text, {.id = entry.id, .cost = static_cast<int64_t>(cost)});
  }
  trie_ = std::move(trie);
}

LeastCostModel::~LeastCostModel() = default;

void LeastCostModel::Encode(std::string_view piece, std::vector<api::TokenId>& ids) const {
  if (piece.starts_with(kByteOrderMark)) piece.remove_prefix(kByteOrderMark.size());
  struct Best {
    int64_t cost = 0;  // of the text from here on
    uint32_t bytes = 0;
    api::TokenId id = kNoToken;  // kNoToken: bytes one by one
  };
  std::vector<Best> best(piece.size() + 1);
  for (size_t begin = piece.size(); begin-- > 0;) {
    const size_t character = CharacterBytes(piece.substr(begin));
    Best& here = best[begin];
    here = {kUnknownCost + best[begin + character].cost, static_cast<uint32_t>(character), kNoToken};
    uint32_t node = ByteTrie::kRoot;
    size_t at = begin;
    while (at < piece.size()) {
      node = trie_->texts.Child(node, piece[at++]);
      if (node == ByteTrie::kNone) break;
      const Trie::Piece& found = trie_->pieces[node];
      if (found.id == kNoToken) continue;
      const int64_t cost = found.cost + best[at].cost;
      if (cost <= here.cost) here = {cost, static_cast<uint32_t>(at - begin), found.id};
    }
    CountWork(1 + (at - begin) / 8);
  }
  for (size_t begin = 0; begin < piece.size(); begin += best[begin].bytes) {
    if (best[begin].id != kNoToken) {
      ids.push_back(best[begin].id);
      continue;
    }
    for (const char byte : piece.substr(begin, best[begin].bytes)) {
      ids.push_back(trie_->bytes[static_cast<unsigned char>(byte)]);
    }
  }
}

}  // namespace quire::runner::tokenizer
