#include "scheduler/queue_places.h"

#include <gtest/gtest.h>

namespace quire::scheduler {
namespace {

const std::string kNobody;

void Fill(QueuePlaces& places, const std::string& model, const std::string& party) {
  while (places.HasRoom(model, party)) places.Add(model, party);
}

TEST(QueuePlaces, APartyThatFillsTheQueueLeavesRoomForOthers) {
  QueuePlaces places(64, 0);
  Fill(places, "m", "a");
  EXPECT_EQ(places.waiting(), 64);
  EXPECT_FALSE(places.HasRoom("another model", "a"));
  EXPECT_FALSE(places.HasRoom(kNobody));
  EXPECT_TRUE(places.HasRoom("b"));
  Fill(places, "m", "b");
  EXPECT_EQ(places.waiting(), 66) << "a quarter of the places behind";
  EXPECT_TRUE(places.HasRoom("c"));
  for (const char* party : {"c", "d", "e"}) Fill(places, "m", party);
  EXPECT_EQ(places.waiting(), 72);
  EXPECT_FALSE(places.HasRoom("f")) << "the places behind are taken, too";
  EXPECT_FALSE(places.IsOverfull());
  places.Remove("m", "a");
  EXPECT_FALSE(places.HasRoom("b")) << "it has as many waiting as it may have behind";
  EXPECT_TRUE(places.HasRoom("f"));
}

// Behind an address may be several people.
TEST(QueuePlaces, APartyThatFillsTheQueueLeavesRoomForItsShortRequests) {
  QueuePlaces places(64, 0);
  Fill(places, "m", "a");
  EXPECT_FALSE(places.HasRoom("m", "a"));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(places.HasRoom("m", "a", AnswerLength::kShort)) << i;
    places.Add("m", "a", AnswerLength::kShort);
  }
  EXPECT_FALSE(places.HasRoom("m", "a", AnswerLength::kShort)) << "a quarter of the places behind";
  EXPECT_FALSE(places.HasRoom("m", kNobody, AnswerLength::kShort));
  EXPECT_TRUE(places.HasRoom("m", "b", AnswerLength::kShort));
  EXPECT_FALSE(places.IsOverfull());
  places.Remove("m", "a", AnswerLength::kShort);
  EXPECT_TRUE(places.HasRoom("m", "a", AnswerLength::kShort));
  EXPECT_EQ(LengthOf(0), AnswerLength::kShort);
  EXPECT_EQ(LengthOf(128), AnswerLength::kShort);
  EXPECT_EQ(LengthOf(129), AnswerLength::kAny);
  EXPECT_EQ(LengthOf(128, 8192), AnswerLength::kShort);
  EXPECT_EQ(LengthOf(1, 8193), AnswerLength::kAny) << "its prompt takes longer than such an answer";
  EXPECT_EQ(LengthOf(-1), AnswerLength::kAny);
}

TEST(QueuePlaces, NoPartyHasMoreThanThePlacesInFront) {
  QueuePlaces places(64, 8);
  for (int i = 0; i < 9; ++i) places.Add("m", "a");
  EXPECT_FALSE(places.IsOverfull());
  places.Add("m", "b");
  EXPECT_TRUE(places.IsOverfull()) << "of the model";
  QueuePlaces all(8, 0);
  for (int i = 0; i < 9; ++i) all.Add("m", kNobody);
  EXPECT_TRUE(all.IsOverfull());
}

TEST(QueuePlaces, WithoutAPartyThereAreNoPlacesBehind) {
  QueuePlaces places(16, 0);
  Fill(places, "m", kNobody);
  EXPECT_EQ(places.waiting(), 16);
  EXPECT_TRUE(places.HasRoom("a"));
}

TEST(QueuePlaces, AModelHasABoundOfItsOwn) {
  QueuePlaces places(64, 8);
  Fill(places, "m", "a");
  EXPECT_EQ(places.waiting(), 8);
  EXPECT_TRUE(places.HasRoom("n", "a"));
  Fill(places, "m", "b");
  EXPECT_EQ(places.waiting(), 9);
  EXPECT_FALSE(places.HasRoom("m", "c"));
  EXPECT_TRUE(places.HasRoom("n", "c"));
}

TEST(QueuePlaces, ThereIsAtLeastOneAndOneBehind) {
  QueuePlaces places(0, 0);
  Fill(places, "m", "a");
  EXPECT_EQ(places.waiting(), 1);
  Fill(places, "m", "b");
  EXPECT_EQ(places.waiting(), 2);
}

}  // namespace
}  // namespace quire::scheduler
