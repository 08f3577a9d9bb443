#include "server/http/body_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "server/http/transport.h"

namespace quire::server {
namespace {

constexpr BodyLimits kLimits{.all = 1000, .small = 10, .large = 750, .party = 500};

struct Body : BodyMemoryLease {
  Body(BodyMemory& memory, const char* party) : BodyMemoryLease(memory) { SetOwner(party, kLimits); }
  // 0: it has grown.
  int Status(uint64_t bytes) {
    const auto reason = GrowTo(bytes);
    return reason ? reason->status : 0;
  }
};

TEST(BodyMemory, OnePartysLargeBodiesLeaveRoomForOthers) {
  BodyMemory memory;
  Body first(memory, "alice");
  EXPECT_EQ(first.Status(400), 0);
  Body second(memory, "alice");
  EXPECT_EQ(second.Status(100), 0);
  EXPECT_EQ(second.Status(101), 429);
  EXPECT_EQ(second.Status(50), 0) << "it is as it was";
  Body third(memory, "alice");
  EXPECT_EQ(third.ReasonAgainst(11)->reason, "too many large request bodies of this client in memory");
  EXPECT_EQ(third.Status(10), 0) << "small bodies have their own room";
  Body other(memory, "bob");
  EXPECT_EQ(other.Status(166), 0);
  EXPECT_EQ(other.Status(167), 503);
  EXPECT_EQ(memory.held(), 676U);
}

TEST(BodyMemory, SeveralPartiesLeaveTheNextOneRoom) {
  BodyMemory memory;
  std::vector<std::unique_ptr<Body>> bodies;
  uint64_t left = kLimits.large;
  for (const char* party : {"alice", "bob", "carol"}) {
    bodies.push_back(std::make_unique<Body>(memory, party));
    const uint64_t share = left * 2 / 3;
    EXPECT_EQ(bodies.back()->Status(share), 0) << party;
    EXPECT_NE(bodies.back()->Status(share + 1), 0) << party;
    Body second(memory, party);
    EXPECT_EQ(second.Status(11), 429) << party;
    left -= share;
  }
  EXPECT_EQ(left, 28U);
  Body innocent(memory, "dave");
  EXPECT_EQ(innocent.Status(18), 0);
}

TEST(BodyMemory, OneOfTheLargestSizeFitsBesideLittle) {
  BodyMemory memory;
  Body other(memory, "bob");
  EXPECT_EQ(other.Status(46), 0);
  BodyMemoryLease body(memory);
  body.SetOwner("alice", {.all = 1000, .small = 10, .large = 750, .party = 750});
  EXPECT_FALSE(body.GrowTo(704));
}

TEST(BodyMemory, SmallBodiesTakeNothingFromLargeOnes) {
  BodyMemory memory;
  std::vector<std::unique_ptr<Body>> small;
  for (int i = 0; i < 25; ++i) {
    small.push_back(std::make_unique<Body>(memory, "alice"));
    EXPECT_EQ(small.back()->Status(10), 0);
  }
  Body large(memory, "alice");
  EXPECT_EQ(large.Status(500), 0);
  Body other(memory, "bob");
  EXPECT_EQ(other.Status(166), 0);
  EXPECT_EQ(memory.held(), 916U);
  for (int i = 0; i < 8; ++i) {
    small.push_back(std::make_unique<Body>(memory, "carol"));
    EXPECT_EQ(small.back()->Status(10), 0);
  }
  Body late(memory, "carol");
  EXPECT_EQ(late.Status(5), 503);
}

TEST(BodyMemory, ABodyGivesBackWhatItNeedsNoMore) {
  BodyMemory memory;
  Body body(memory, "alice");
  EXPECT_EQ(body.Status(400), 0);
  body.ShrinkTo(450);
  EXPECT_EQ(memory.held(), 400U);
  body.ShrinkTo(100);
  EXPECT_EQ(memory.held(), 100U);
  Body second(memory, "alice");
  EXPECT_EQ(second.Status(400), 0);
  body.ShrinkTo(5);
  EXPECT_EQ(second.Status(500), 0) << "what is small is not the party's share";
}

TEST(BodyMemory, WhatBodiesHeldIsGivenBack) {
  BodyMemory memory;
  {
    Body small(memory, "alice");
    EXPECT_EQ(small.Status(5), 0);
    EXPECT_EQ(small.Status(300), 0);
    EXPECT_EQ(memory.held(), 300U);
  }
  EXPECT_EQ(memory.held(), 0U);
  Body again(memory, "alice");
  EXPECT_EQ(again.Status(500), 0);
}

TEST(BodyMemory, OneBodyOfTheLargestSizeAlwaysFitsAShare) {
  TransportLimits limits;
  EXPECT_EQ(limits.Bodies().party, limits.buffered_bodies_bytes / 2);
  limits.parser.body_bytes = limits.buffered_bodies_bytes / 4 * 3;
  EXPECT_EQ(limits.Bodies().party, limits.parser.body_bytes);
  limits.parser.body_bytes = limits.buffered_bodies_bytes;
  EXPECT_EQ(limits.Bodies().party, limits.Bodies().large);
}

}  // namespace
}  // namespace quire::server
