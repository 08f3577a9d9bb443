#include "runner/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace quire::runner::tokenizer {
namespace {

using api::TokenId;

BpeDefinition Bytes() {
  BpeDefinition definition;
  for (size_t byte = 0; byte < 256; ++byte) definition.byte_tokens[byte] = static_cast<TokenId>(byte);
  return definition;
}

// One merge at a time: the pair of lowest rank, leftmost.
std::vector<TokenId> Reference(const BpeDefinition& definition, std::string_view piece) {
  std::map<std::pair<TokenId, TokenId>, std::pair<size_t, TokenId>> ranks;
  for (size_t i = 0; i < definition.merges.size(); ++i) {
    const Merge& merge = definition.merges[i];
    ranks[{merge.left, merge.right}] = {i, merge.merged};
  }
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(definition.byte_tokens[static_cast<uint8_t>(c)]);
  while (true) {
    size_t best = ids.size();
    size_t best_rank = definition.merges.size();
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found == ranks.end() || found->second.first >= best_rank) continue;
      best = i;
      best_rank = found->second.first;
    }
    if (best == ids.size()) return ids;
    ids[best] = ranks[{ids[best], ids[best + 1]}].second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<TokenId> EncodePiece(const BpeModel& model, std::string_view piece) {
  std::vector<TokenId> ids;
  model.Encode(piece, ids);
  return ids;
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomMerges) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    BpeDefinition definition = Bytes();
    std::vector<TokenId> symbols = {'a', 'b', 'c'};
    const size_t merges = 1 + random() % 40;
    for (size_t i = 0; i < merges; ++i) {
      const auto merged = static_cast<TokenId>(256 + i);
      definition.merges.push_back(
          {symbols[random() % symbols.size()], symbols[random() % symbols.size()], merged});
      symbols.push_back(merged);
    }
    const BpeModel model(definition);
    for (const size_t length : {0U, 1U, 2U, 7U, 31U, 32U, 33U, 64U, 300U}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece.push_back(static_cast<char>('a' + random() % 3));
      EXPECT_EQ(EncodePiece(model, piece), Reference(definition, piece)) << piece;
    }
  }
}

TEST(Bpe, ALaterMergeOfTheSamePairCounts) {
  BpeDefinition definition = Bytes();
  definition.merges = {{'a', 'b', 256}, {'b', 'c', 257}, {'a', 'b', 258}};
  EXPECT_EQ(EncodePiece(BpeModel(definition), "abc"), (std::vector<TokenId>{'a', 257}));
}

TEST(Bpe, BytesWithoutATokenAreUnknownOrLeftOut) {
  BpeDefinition definition = Bytes();
  definition.byte_tokens['x'] = kNoToken;
  EXPECT_EQ(EncodePiece(BpeModel(definition), "axxb"), (std::vector<TokenId>{'a', 'b'}));
  definition.unknown = 300;
  EXPECT_EQ(EncodePiece(BpeModel(definition), "axxb"), (std::vector<TokenId>{'a', 300, 300, 'b'}));
  definition.fuse_unknown = true;
  EXPECT_EQ(EncodePiece(BpeModel(definition), "axxbx"), (std::vector<TokenId>{'a', 300, 'b', 300}));
  EXPECT_EQ(EncodePiece(BpeModel(definition), std::string(100, 'x')), (std::vector<TokenId>{300}));
}

TEST(Bpe, WholePiecesComeBeforeMerges) {
  BpeDefinition definition = Bytes();
  definition.merges = {{'a', 'b', 256}};
  definition.whole_pieces = {{"abc", 257}};
  const BpeModel model(definition);
  EXPECT_EQ(EncodePiece(model, "abc"), (std::vector<TokenId>{257}));
  EXPECT_EQ(EncodePiece(model, "abcd"), (std::vector<TokenId>{256, 'c', 'd'}));
}

// A million bytes in one piece: every length of run that halves, and nothing that is quadratic.
TEST(Bpe, MergesAMillionBytes) {
  BpeDefinition definition = Bytes();
  TokenId last = 'a';
  for (TokenId id = 256; id < 266; ++id) {
    definition.merges.push_back({last, last, id});
    last = id;
  }
  const BpeModel model(definition);
  const auto ids = EncodePiece(model, std::string(1024 * 1000 + 3, 'a'));
  ASSERT_EQ(ids.size(), 1002U);
  EXPECT_EQ(ids[0], 265);
  EXPECT_EQ(ids[1000], 256);
  EXPECT_EQ(ids[1001], 'a');
}

}  // namespace
}  // namespace quire::runner::tokenizer
