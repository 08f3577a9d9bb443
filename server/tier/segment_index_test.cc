#include "server/tier/segment_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace quire::server {
namespace {

// Prefixes of four-token segments of 100 bytes each, with a state of 10 where the model needs one.
class SegmentIndexes : public ::testing::Test {
 protected:
  static KeyChain ChainOf(const PrefixOrigin& origin, const std::vector<int32_t>& tokens) {
    return KeyChain(RootKey(HashOf("secret"), origin), tokens, origin.segment_tokens);
  }
  SnapshotKey Put(const PrefixOrigin& origin, const std::vector<int32_t>& tokens) {
    const KeyChain chain = ChainOf(origin, tokens);
    ++now_;
    SnapshotKey last{};
    for (const PrefixPiece& piece : chain.Pieces(0, chain.tokens(), origin.needs_state)) {
      last = piece.key;
      if (index_.Find(piece.key) != nullptr) {
        index_.Touch(piece.key, now_);
        continue;
      }
      const StoredSegment segment{piece.key,   chain.Prefix(piece.begin()),
                                  piece.from,  piece.to,
                                  piece.state, piece.state ? uint64_t{10} : uint64_t{100}};
      index_.Add(segment, segment.begins_prefix() ? &origin : nullptr, now_);
    }
    return last;
  }
  static std::vector<int32_t> Count(int32_t from, int32_t to) {
    std::vector<int32_t> tokens(static_cast<size_t>(to - from));
    std::iota(tokens.begin(), tokens.end(), from);
    return tokens;
  }
  std::vector<SnapshotKey> Ids() const {
    std::vector<SnapshotKey> ids;
    for (const StoredPrefix& prefix : index_.Prefixes()) ids.push_back(prefix.id);
    return ids;
  }

  SegmentIndex index_{SegmentIndex::Owners::kTenants};
  uint64_t now_ = 0;
  const PrefixOrigin plain_{.model = "a", .segment_tokens = 4};
  const PrefixOrigin hybrid_{.model = "b", .files = "b", .segment_tokens = 4, .needs_state = true};
};

TEST_F(SegmentIndexes, ListsTheEndsOfPrefixesLastUsedFirst) {
  const SnapshotKey shorter = Put(plain_, Count(0, 6));
  const SnapshotKey longer = Put(plain_, Count(0, 12));
  const auto prefixes = index_.Prefixes();
  ASSERT_EQ(Ids(), (std::vector{longer, shorter}));
  EXPECT_EQ(prefixes[0].tokens, 12);
  EXPECT_EQ(prefixes[0].segments, 3u);
  EXPECT_EQ(prefixes[1].tokens, 6);
  EXPECT_EQ(prefixes[0].origin.model, "a");
  EXPECT_EQ(index_.files(), 4u) << "the first segment is shared";
}

TEST_F(SegmentIndexes, EveryStateOfAHybridIsAPrefix) {
  const SnapshotKey first = Put(hybrid_, Count(0, 4));
  const SnapshotKey second = Put(hybrid_, Count(0, 8));
  EXPECT_EQ(Ids(), (std::vector{second, first}));
  EXPECT_EQ(index_.OnlyOf(second).size(), 2u);  // its state and the second segment
  EXPECT_EQ(index_.OnlyOf(first).size(), 1u);   // its state; the segment begins the second prefix
}

TEST_F(SegmentIndexes, IncompletePrefixesAreNotListed) {
  Put(plain_, Count(0, 12));
  const auto keys = index_.SegmentsOf(Ids().front());
  index_.Drop(keys[1]);
  EXPECT_TRUE(index_.SegmentsOf(keys[2]).empty());
  EXPECT_EQ(Ids(), std::vector{keys[0]});
  index_.Drop(keys[0]);
  EXPECT_TRUE(Ids().empty());
  EXPECT_EQ(index_.files(), 1u);
}

TEST_F(SegmentIndexes, OwnersAndModelsAreApart) {
  PrefixOrigin other = plain_;
  other.isolation = "1:b";
  Put(plain_, Count(0, 8));
  Put(other, Count(0, 8));
  Put(hybrid_, Count(0, 8));
  EXPECT_EQ(Ids().size(), 3u);
  EXPECT_EQ(index_.files(), 7u);
}

TEST_F(SegmentIndexes, PruningAPrefixLeavesWhatOthersNeed) {
  const SnapshotKey one = Put(plain_, Count(0, 10));
  std::vector<int32_t> branch = Count(0, 8);
  branch.insert(branch.end(), {90, 91});
  const SnapshotKey two = Put(plain_, branch);
  for (const SnapshotKey& key : index_.OnlyOf(one)) index_.Drop(key);
  EXPECT_EQ(Ids(), std::vector{two});
  EXPECT_EQ(index_.SegmentsOf(two).size(), 3u);
  for (const SnapshotKey& key : index_.OnlyOf(two)) index_.Drop(key);
  EXPECT_EQ(index_.files(), 0u);
  EXPECT_EQ(index_.bytes(), 0u);
}

TEST_F(SegmentIndexes, TheEndsOfPrefixesAreEvictedFirst) {
  Put(plain_, Count(0, 12));
  Put(hybrid_, Count(0, 8));
  std::vector<int64_t> ends;
  while (const auto oldest = index_.NextToEvict(now_)) {
    const auto* entry = index_.Find(*oldest);
    ends.push_back(entry->segment.to);
    index_.Drop(SnapshotKey(*oldest));
  }
  EXPECT_EQ(ends, (std::vector<int64_t>{12, 8, 4, 8, 8, 4}));
}

TEST_F(SegmentIndexes, AnOwnersPrefixesLeaveWithTheirWhole) {
  PrefixOrigin flood = plain_;
  flood.isolation = "5:flood";
  PrefixOrigin quiet = hybrid_;
  quiet.isolation = "5:quiet";
  const SnapshotKey kept = Put(quiet, Count(0, 8));
  for (int32_t i = 0; i < 10; ++i) Put(flood, Count(100 * i, 100 * i + 12));
  while (index_.files() > 6) index_.Drop(SnapshotKey(*index_.NextToEvict(now_)));
  EXPECT_EQ(Ids().back(), kept);
  EXPECT_EQ(index_.SegmentsOf(kept).size(), 3u);
}

// What is behind it had come before it, and is its owner's from its next use on.
TEST_F(SegmentIndexes, ASegmentBehindAMissingOneGetsItsOwnerLater) {
  PrefixOrigin owned = plain_;
  owned.isolation = "1:a";
  const SnapshotKey id = Put(owned, Count(0, 8));
  const SnapshotKey first = index_.SegmentsOf(id).front();
  const StoredSegment last = index_.Find(id)->segment;
  index_.Drop(first);
  index_.Add(last, nullptr, now_);
  EXPECT_EQ(index_.Find(id)->owner, "");
  Put(owned, Count(0, 8));
  EXPECT_EQ(index_.Find(id)->owner, "a");
}

// Without keys a credential is whatever its sender made up.
TEST_F(SegmentIndexes, TenantsThatNobodyChecksAreNoOwners) {
  SegmentIndex index(SegmentIndex::Owners::kOne);
  const auto put = [&](const std::string& name, const std::string& isolation, uint64_t used_ns) {
    PrefixOrigin origin = plain_;
    origin.isolation = isolation;
    index.Add({HashOf(name), HashOf(name), 0, 4, false, 100}, &origin, used_ns);
  };
  put("made up 1", "1:x", 1);
  put("made up 2", "1:y", 2);
  for (uint64_t i = 0; i < 5; ++i) put(fmt::format("honest {}", i), "0:", 3 + i);
  EXPECT_EQ(index.NextToEvict(10), HashOf("made up 1"));
}

TEST_F(SegmentIndexes, HitsBelongToTheEnd) {
  const SnapshotKey id = Put(hybrid_, Count(0, 8));
  index_.CountHit(id);
  index_.CountHit(id);
  index_.CountHit(HashOf("none"));
  EXPECT_EQ(index_.PrefixOf(id)->hits, 2u);
}

}  // namespace
}  // namespace quire::server
