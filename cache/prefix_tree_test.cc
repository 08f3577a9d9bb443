#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace quire::cache {
namespace {

using TokenIds = std::vector<TokenId>;

// A model of the tree with plain lists: the keys of every prefix that was inserted.
Position LongestKnown(const std::vector<TokenIds>& known, const TokenIds& query, bool lookahead) {
  Position best = 0;
  for (const TokenIds& tokens : known) {
    const auto same = static_cast<Position>(std::ranges::mismatch(tokens, query).in1 - tokens.begin());
    best = std::max(best, lookahead ? same - 1 : same);
  }
  return best;
}

void Insert(PrefixTree& tree, const TokenIds& tokens) {
  const Position to = tree.Keys(tokens);
  if (to == 0) return;
  const PrefixTree::Match match = tree.Find(tokens);
  PrefixNode* node = match.node;
  if (match.matched < node->to) node = tree.Split(node, match.matched);
  if (match.matched < to) tree.AddLeaf(node, tokens, to);
}

void ExpectSound(const PrefixTree& tree) {
  const auto ok = tree.CheckInvariants();
  ASSERT_TRUE(ok.has_value()) << ok.error();
}

TEST(PrefixTree, MatchesTokenByTokenInsideAnEdge) {
  PrefixTree tree;
  Insert(tree, {1, 2, 3, 4, 5});
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 3, 9}).matched, 3);
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 3, 4, 5, 6}).matched, 5);
  EXPECT_EQ(tree.Find(TokenIds{2}).matched, 0);
  EXPECT_EQ(tree.Find(TokenIds{}).matched, 0);
}

TEST(PrefixTree, SplitsAtAnyTokenAndMergesWithAnOnlyChild) {
  for (Position at = 1; at < 5; ++at) {
    PrefixTree tree;
    Insert(tree, {1, 2, 3, 4, 5});
    PrefixNode* leaf = tree.Find(TokenIds{1, 2, 3, 4, 5}).node;
    PrefixNode* upper = tree.Split(leaf, at);
    ExpectSound(tree);
    EXPECT_EQ(tree.nodes(), 2u);
    EXPECT_EQ(upper->only_child(), leaf);
    EXPECT_EQ(leaf->from, at);
    EXPECT_EQ(tree.Find(TokenIds{1, 2, 3, 4, 5}).matched, 5);
    EXPECT_EQ(tree.Path(leaf), (TokenIds{1, 2, 3, 4, 5}));
    tree.MergeIntoChild(upper);
    ExpectSound(tree);
    EXPECT_EQ(leaf->from, 0);
    EXPECT_EQ(tree.Path(leaf), (TokenIds{1, 2, 3, 4, 5}));
  }
}

TEST(PrefixTree, SiblingsNeverShareAFirstToken) {
  PrefixTree tree;
  Insert(tree, {1, 2, 3});
  Insert(tree, {1, 2, 4});
  Insert(tree, {1, 5});
  ExpectSound(tree);
  EXPECT_EQ(tree.root()->children.size(), 1u);
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 4}).matched, 3);
  EXPECT_EQ(tree.Find(TokenIds{1, 5, 7}).matched, 2);
}

TEST(PrefixTree, LookAheadPairsEachTokenWithTheNext) {
  PrefixTree tree(true);
  Insert(tree, {1, 2, 3, 4});
  EXPECT_EQ(tree.nodes(), 1u);
  // The entry of the last equal token depends on the token behind it.
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 3, 4}).matched, 3);
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 3, 9}).matched, 2);
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 3}).matched, 2);
  EXPECT_EQ(tree.Find(TokenIds{1}).matched, 0);
  Insert(tree, {1, 2, 3, 9, 9});
  ExpectSound(tree);
  EXPECT_EQ(tree.nodes(), 3u);
  EXPECT_EQ(tree.Find(TokenIds{1, 2, 3, 9, 9}).matched, 4);
  PrefixNode* leaf = tree.Find(TokenIds{1, 2, 3, 4}).node;
  EXPECT_EQ(tree.Path(leaf), (TokenIds{1, 2, 3, 4}));
}

TEST(PrefixTree, AgreesWithPlainListsOverRandomOperations) {
  for (const bool lookahead : {false, true}) {
    std::mt19937 random(3);
    PrefixTree tree(lookahead);
    std::vector<TokenIds> known;
    for (int op = 0; op < 4000; ++op) {
      TokenIds tokens(1 + random() % 24);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 3);
      if (!known.empty() && random() % 2 == 0) {
        const TokenIds& other = known[random() % known.size()];
        std::copy_n(other.begin(), std::min(other.size(), tokens.size() / 2), tokens.begin());
      }
      ASSERT_EQ(tree.Find(tokens).matched, std::max<Position>(0, LongestKnown(known, tokens, lookahead)));
      PrefixNode* node = tree.Find(tokens).node;
      switch (random() % 4) {
        case 0:
          if (node->to - node->from > 1) {
            const auto width = static_cast<uint64_t>(node->to - node->from - 1);
            tree.Split(node, node->from + 1 + static_cast<Position>(random() % width));
          }
          break;
        case 1:
          if (node->parent != nullptr && node->only_child() != nullptr) tree.MergeIntoChild(node);
          break;
        case 2:
          if (known.size() < 40) {
            Insert(tree, tokens);
            known.push_back(tokens);
            ASSERT_EQ(tree.Find(tokens).matched, tree.Keys(tokens));
          }
          break;
        default:
          if (node->parent != nullptr && node->children.empty() && random() % 4 == 0) {
            const Position keep = node->from;
            const TokenIds path = tree.Path(node);
            tree.RemoveLeaf(node);
            // Prefixes through the leaf now end at its parent.
            for (TokenIds& one : known) {
              const auto same = static_cast<Position>(std::ranges::mismatch(one, path).in1 - one.begin());
              if (same - (lookahead ? 1 : 0) > keep)
                one.resize(static_cast<size_t>(keep) + (lookahead ? 1 : 0));
            }
          }
      }
      ExpectSound(tree);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PrefixTree, APathOfManyNodesIsNoRecursion) {
  PrefixTree tree;
  TokenIds tokens;
  for (int i = 0; i < 200000; ++i) tokens.push_back(i);
  tree.AddLeaf(tree.root(), tokens, 200000);
  PrefixNode* node = tree.root()->children.begin()->second.get();
  for (Position at = 199999; at > 0; --at) node = tree.Split(node, at);
  ExpectSound(tree);
  EXPECT_EQ(tree.nodes(), 200000u);
  EXPECT_EQ(tree.Find(tokens).matched, 200000);
}

TEST(TokenRun, CutsAndJoinsWithoutChangingTheTokens) {
  std::mt19937 random(5);
  TokenIds tokens(40000);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 1000);
  const TokenRun run(tokens);
  for (int round = 0; round < 300; ++round) {
    const size_t a = random() % 40001;
    const size_t b = a + random() % (40001 - a);
    TokenRun rest = run;
    TokenRun front = rest.First(a);
    rest.DropFirst(a);
    EXPECT_EQ(rest.size(), tokens.size() - a);
    rest.DropLast(40000 - b);
    front.Append(rest.First(b - a));
    TokenIds last;
    front.Last(b / 2).AppendTo(&last);
    ASSERT_TRUE(std::ranges::equal(last, std::span(tokens).subspan(b - b / 2, b / 2)));
    front.Append(TokenRun(std::span(tokens).subspan(b)));
    TokenIds again;
    front.AppendTo(&again);
    ASSERT_EQ(again, tokens);
    ASSERT_EQ(front.size(), tokens.size());
    if (b < 40000) {
      ASSERT_EQ(front[b], tokens[b]);
      TokenIds other = tokens;
      other[b] = -1;
      ASSERT_EQ(front.CommonPrefix(other), b);
    }
  }
}

}  // namespace
}  // namespace quire::cache
