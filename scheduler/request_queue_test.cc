// Who finds a place in the queue, and whose it is.
#include "scheduler/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "scheduler/testing/scheduler_fixture.h"

namespace quire::scheduler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RequestQueueTest : public SchedulerTest {
 protected:
  bool Add(uint64_t id, const std::string& party, const std::string& key = "a",
           const std::string& exchange = {}) {
    const api::Client client{.party = fair::PartyNamed(party, party == "heavy" ? 3 : 1),
                             .exchange = exchange};
    return scheduler().Enqueue(Id(id), key, {}, kStart, client).has_value();
  }
};

TEST_F(RequestQueueTest, APartyAboveItsShareGivesBackItsNewestPlaces) {
  Make(1, 4);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(Add(id, "alice"));
  EXPECT_FALSE(Add(5, "alice"));
  EXPECT_TRUE(Add(6, "bob"));
  EXPECT_TRUE(Add(7, "bob"));
  EXPECT_FALSE(Add(8, "bob")) << "it would have more than its share";
  EXPECT_FALSE(Add(9, "alice"));
  EXPECT_EQ(scheduler().waiting(), 4);
  EXPECT_THAT(Plan().displaced, ElementsAre(Id(4), Id(3)));
  EXPECT_TRUE(Add(10, "carol"));
  EXPECT_EQ(Plan().displaced.size(), 1U);
  EXPECT_EQ(scheduler().requests(), 4);
}

TEST_F(RequestQueueTest, SharesAreByWeight) {
  Make(1, 8);
  for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(Add(id, "alice"));
  for (uint64_t id = 11; id <= 16; ++id) EXPECT_TRUE(Add(id, "heavy"));
  EXPECT_FALSE(Add(17, "heavy"));
  EXPECT_EQ(Plan().displaced.size(), 6U);
}

TEST_F(RequestQueueTest, AModelsPlacesAreSharedLikewise) {
  Make({.models_max = 1, .queue_max = 100, .model_queue_max = 2});
  for (const uint64_t id : {1, 2}) ASSERT_TRUE(Add(id, "alice"));
  EXPECT_TRUE(Add(3, "alice", "b")) << "it has places of its own";
  EXPECT_FALSE(Add(4, "alice"));
  EXPECT_TRUE(Add(5, "bob"));
  EXPECT_THAT(Plan().displaced, ElementsAre(Id(2)));
}

TEST_F(RequestQueueTest, WhatARunnerHasStartedIsServed) {
  Make(1, 2);
  for (const uint64_t id : {1, 2}) ASSERT_TRUE(Add(id, "alice"));
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  ASSERT_EQ(Plan().admit.size(), 2U);
  scheduler().Start(Id(1));
  ASSERT_TRUE(Add(3, "alice"));
  ASSERT_TRUE(Add(4, "bob"));
  ASSERT_TRUE(scheduler().IsFullFor("a", fair::PartyNamed("bob")));
  EXPECT_THAT(Plan().displaced, ElementsAre(Id(3)));
}

// The choices of one answer are requests of one exchange.
TEST_F(RequestQueueTest, AnAnswerThatHasBegunKeepsItsChoices) {
  Make(1, 3);
  ASSERT_TRUE(Add(1, "alice", "a", "other"));
  for (const uint64_t id : {2, 3}) ASSERT_TRUE(Add(id, "alice", "a", "begun"));
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  scheduler().Start(Id(2));
  ASSERT_TRUE(Add(4, "alice", "a", "begun"));
  scheduler().Remove(Id(2), kStart);
  ASSERT_TRUE(Add(5, "bob"));
  EXPECT_THAT(Plan().displaced, ElementsAre(Id(1)));
}

// A text that is to be embedded is asked for again, and nobody notices.
TEST_F(RequestQueueTest, TextsGiveWayToAnswers) {
  Make(1, 3);
  ASSERT_TRUE(Add(1, "alice", "a", "chat"));
  for (const uint64_t id : {2, 3}) ASSERT_TRUE(Add(id, "alice", "a", "texts"));
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  (void)Plan();
  scheduler().Start(Id(2), /*answers=*/false);
  ASSERT_TRUE(Add(4, "alice", "a", "texts"));
  ASSERT_TRUE(Add(5, "bob"));
  EXPECT_THAT(Plan().displaced, ElementsAre(Id(4)));
}

TEST_F(RequestQueueTest, WhoStartsBeforeItIsAnsweredIsServed) {
  Make(1, 2);
  for (const uint64_t id : {1, 2}) ASSERT_TRUE(Add(id, "alice"));
  (void)Plan();
  scheduler().LoadDone("a", kStart);
  ASSERT_EQ(Plan().admit.size(), 2U);
  ASSERT_TRUE(Add(3, "bob"));
  scheduler().Start(Id(2));
  EXPECT_THAT(Plan().displaced, IsEmpty());
  EXPECT_EQ(scheduler().waiting(), 2);
}

}  // namespace
}  // namespace quire::scheduler
