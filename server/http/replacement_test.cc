#include "server/http/replacement.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::server {
namespace {

using std::chrono::milliseconds;
using Stage = Idleness::Stage;

TEST(ReplacedBefore, NewClientsGiveTheirPlacesAfterIdleOnes) {
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  const auto idle = [now](Stage stage, int age_ms) { return Idleness{stage, now - milliseconds(age_ms)}; };
  const std::vector<Idleness> ordered{
      idle(Stage::kClosing, 5000),          idle(Stage::kClosing, 10),
      idle(Stage::kBeforeRequest, 3000),    idle(Stage::kBeforeRequest, 2000),
      idle(Stage::kBetweenRequests, 60000), idle(Stage::kBetweenRequests, 2000),
      idle(Stage::kBeforeRequest, 1999),    idle(Stage::kBeforeRequest, 0),
      idle(Stage::kBetweenRequests, 1999),  idle(Stage::kBetweenRequests, 0)};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(ReplacedBefore(ordered[i], ordered[j], now), i < j) << i << " " << j;
    }
  }
}

TEST(ReplacedBefore, UnreadAnswersGoBeforeKeptConnectionsAndUnreadStreamsLast) {
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  const auto idle = [now](Stage stage, int age_ms) { return Idleness{stage, now - milliseconds(age_ms)}; };
  const std::vector<Idleness> ordered{
      idle(Stage::kClosing, 0),         idle(Stage::kBeforeRequest, 2000),   idle(Stage::kUnreadAnswer, 9000),
      idle(Stage::kUnreadAnswer, 2000), idle(Stage::kBetweenRequests, 2000), idle(Stage::kBeforeRequest, 0),
      idle(Stage::kBetweenRequests, 0), idle(Stage::kUnreadStream, 60000)};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(ReplacedBefore(ordered[i], ordered[j], now), i < j) << i << " " << j;
    }
  }
}

// To close what waits for nothing costs nobody anything, whoever has it.
TEST(ReplacedBefore, ThePartyWithTheMostConnectionsPays) {
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  const auto idle = [now](Stage stage, int age_ms, size_t connections) {
    return Idleness{stage, now - milliseconds(age_ms), connections};
  };
  const std::vector<Idleness> ordered{
      idle(Stage::kClosing, 0, 1),           idle(Stage::kBeforeRequest, 2000, 900),
      idle(Stage::kBeforeRequest, 9000, 1),  idle(Stage::kUnreadAnswer, 2000, 900),
      idle(Stage::kBetweenRequests, 0, 900), idle(Stage::kUnreadStream, 10000, 900),
      idle(Stage::kUnreadAnswer, 9000, 20),  idle(Stage::kBetweenRequests, 60000, 1)};
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < ordered.size(); ++j) {
      EXPECT_EQ(ReplacedBefore(ordered[i], ordered[j], now), i < j) << i << " " << j;
    }
  }
}

TEST(MayReplace, ALargerPartyOnlyReplacesWhatWaitsForNothing) {
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  const auto idle = [now](Stage stage, int age_ms) { return Idleness{stage, now - milliseconds(age_ms), 5}; };
  for (const Stage stage : {Stage::kUnreadAnswer, Stage::kBetweenRequests, Stage::kUnreadStream}) {
    EXPECT_TRUE(MayReplace(5, idle(stage, 60000), now));
    EXPECT_FALSE(MayReplace(6, idle(stage, 60000), now));
  }
  EXPECT_FALSE(MayReplace(6, idle(Stage::kBeforeRequest, 1999), now));
  EXPECT_TRUE(MayReplace(6, idle(Stage::kBeforeRequest, 2000), now));
  EXPECT_TRUE(MayReplace(6, idle(Stage::kClosing, 0), now));
}

TEST(StageOfUnread, AStreamMayBeReadSlowly) {
  const auto stage = [](AnswerKind kind, int lag_ms) { return StageOfUnread({kind, milliseconds(lag_ms)}); };
  EXPECT_EQ(stage(AnswerKind::kWhole, 1999), std::nullopt);
  EXPECT_EQ(stage(AnswerKind::kWhole, 2000), Stage::kUnreadAnswer);
  EXPECT_EQ(stage(AnswerKind::kStream, 9999), std::nullopt);
  EXPECT_EQ(stage(AnswerKind::kStream, 10000), Stage::kUnreadStream);
}

}  // namespace
}  // namespace quire::server
