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

}  // namespace
}  // namespace quire::server
