#include "runner/draft/ngram_index.h"

#include <gtest/gtest.h>

#include <random>

namespace quire::runner::draft {
namespace {

// The contract of Find, by exhaustive search.
struct Expected {
  int32_t length = 0;
  std::vector<TokenId> next;
};
Expected Look(std::span<const TokenId> tokens, int32_t limit) {
  Expected best;
  const auto size = std::ssize(tokens);
  ptrdiff_t at = 0;
  for (ptrdiff_t position = size - 1; position >= 2; --position) {
    int32_t length = 0;
    while (length < std::min<ptrdiff_t>(position, NgramIndex::kMatchMax) &&
           tokens[static_cast<size_t>(position - 1 - length)] ==
               tokens[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length < 2 || length <= best.length) continue;
    best.length = length;
    at = position;
  }
  if (best.length == 0) return best;
  for (ptrdiff_t i = 0; i < limit; ++i) {
    const ptrdiff_t from = at + i;
    best.next.push_back(from < size ? tokens[static_cast<size_t>(from)]
                                    : best.next[static_cast<size_t>(from - size)]);
  }
  return best;
}

TEST(NgramIndex, FindsNothingWhereNothingRepeats) {
  NgramIndex index;
  std::vector<TokenId> next = {1};
  const std::vector<TokenId> tokens = {5, 6, 7, 8, 6};
  index.Extend({});
  EXPECT_EQ(index.Find({}, 4, next), 0);
  index.Extend(tokens);
  EXPECT_EQ(index.Find(tokens, 4, next), 0) << "one token alone is no match";
  EXPECT_TRUE(next.empty());
}

TEST(NgramIndex, WrapsAroundRepetitions) {
  NgramIndex index;
  std::vector<TokenId> next;
  const std::vector<TokenId> tokens = {9, 1, 2, 3, 1, 2, 3, 1, 2};
  index.Extend(tokens);
  EXPECT_EQ(index.Find(tokens, 7, next), 5);
  EXPECT_EQ(next, (std::vector<TokenId>{3, 1, 2, 3, 1, 2, 3}));
}

TEST(NgramIndex, EqualsLookingEverywhereHoweverItWasExtended) {
  std::mt19937 random(7);
  for (const int32_t vocabulary : {2, 3, 5, 40, 1000}) {
    NgramIndex index;
    std::vector<TokenId> tokens, next;
    // Fewer places of a pair than Find looks at.
    const size_t size = vocabulary < 5 ? 60 : 600;
    while (tokens.size() < size) {
      for (auto more = random() % 5; more > 0; --more) {
        tokens.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocabulary)));
      }
      index.Extend(tokens);
      const auto limit = static_cast<int32_t>(random() % 9);
      const int32_t length = index.Find(tokens, limit, next);
      const Expected expected = Look(tokens, limit);
      if (limit == 0) continue;
      ASSERT_EQ(length, expected.length) << vocabulary << " at " << tokens.size();
      ASSERT_EQ(next, expected.next);
    }
    index.Clear();
    index.Extend(std::span(tokens).first(10));
    EXPECT_EQ(index.Find(std::span(tokens).first(10), 3, next), Look(std::span(tokens).first(10), 3).length);
  }
}

}  // namespace
}  // namespace quire::runner::draft
