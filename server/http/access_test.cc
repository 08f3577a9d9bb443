#include "server/http/access.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::server {
namespace {

using namespace std::chrono_literals;

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() {
    user_ = Make("user", Role::kInference, {});
    admin_ = Make("admin", Role::kAdmin, {});
    narrow_ = Make("narrow", Role::kInference, {.parallel = 2});
    slow_ = Make("slow", Role::kInference, {.per_minute = 2});
    auto ring = KeyRing::Parse(lines_);
    EXPECT_TRUE(ring.has_value());
    access_.Replace(*std::move(ring));
  }

  std::string Make(const char* name, Role role, const KeyLimits& limits) {
    const auto key = MakeKey(name, role, limits);
    EXPECT_TRUE(key.has_value());
    lines_ += key->line + "\n";
    return key->secret;
  }

  auto Admit(std::vector<HeaderField> fields, Access needed = Access::kInference, bool counted = true) {
    HttpRequest request;
    request.fields = std::move(fields);
    return access_.Admit(request, needed, counted, now_);
  }
  int StatusOf(std::vector<HeaderField> fields, Access needed = Access::kInference) {
    const auto admitted = Admit(std::move(fields), needed);
    return admitted ? 200 : admitted.error().status;
  }

  std::string lines_, user_, admin_, narrow_, slow_;
  AccessControl access_;
  AccessControl::Time now_ = AccessControl::Time(1000s);
};

TEST_F(AccessTest, TakesAKeyFromEitherField) {
  EXPECT_EQ(StatusOf({{"authorization", "Bearer " + user_}}), 200);
  EXPECT_EQ(StatusOf({{"authorization", "bearer  " + user_}}), 200);
  EXPECT_EQ(StatusOf({{"x-api-key", user_}}), 200);
  EXPECT_EQ(StatusOf({{"authorization", "Bearer other"}, {"x-api-key", user_}}), 200);
  EXPECT_EQ(Admit({{"x-api-key", user_}})->name, "user");
}

TEST_F(AccessTest, RefusesWhatIsNoKey) {
  EXPECT_EQ(StatusOf({}), 401);
  EXPECT_EQ(StatusOf({{"authorization", user_}}), 401);
  EXPECT_EQ(StatusOf({{"authorization", "Basic " + user_}}), 401);
  EXPECT_EQ(StatusOf({{"authorization", "Bearer"}}), 401);
  EXPECT_EQ(StatusOf({{"authorization", "Bearer " + user_ + "x"}}), 401);
  EXPECT_EQ(StatusOf({{"x-api-key", user_.substr(1)}}), 401);
  EXPECT_EQ(StatusOf({}, Access::kOpen), 200);
}

TEST_F(AccessTest, OnlyAdminsMayDoAdminThings) {
  EXPECT_EQ(StatusOf({{"x-api-key", user_}}, Access::kAdmin), 403);
  EXPECT_EQ(StatusOf({{"x-api-key", admin_}}, Access::kAdmin), 200);
  EXPECT_EQ(StatusOf({{"x-api-key", admin_}}, Access::kInference), 200);
}

TEST_F(AccessTest, HoldsAKeyToItsParallelRequests) {
  auto first = Admit({{"x-api-key", narrow_}});
  auto second = Admit({{"x-api-key", narrow_}});
  ASSERT_TRUE(first && second);
  const auto third = Admit({{"x-api-key", narrow_}});
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().status, 429);
  EXPECT_GE(third.error().retry_after, 1s);
  EXPECT_TRUE(Admit({{"x-api-key", narrow_}}, Access::kInference, /*counted=*/false).has_value());
  EXPECT_TRUE(Admit({{"x-api-key", user_}}).has_value());
  second->permit = fair::Quota::Lease();
  EXPECT_TRUE(Admit({{"x-api-key", narrow_}}).has_value());
}

TEST_F(AccessTest, HoldsAKeyToItsRate) {
  const std::vector<HeaderField> fields = {{"x-api-key", slow_}};
  EXPECT_EQ(StatusOf(fields), 200);
  EXPECT_EQ(StatusOf(fields), 200);
  const auto third = Admit(fields);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().status, 429);
  now_ += third.error().retry_after;
  EXPECT_EQ(StatusOf(fields), 200);
  EXPECT_EQ(StatusOf(fields), 429);
  now_ += 1h;  // what was not used does not pile up beyond a minute's worth
  EXPECT_EQ(StatusOf(fields), 200);
  EXPECT_EQ(StatusOf(fields), 200);
  EXPECT_EQ(StatusOf(fields), 429);
}

TEST_F(AccessTest, ReportsTheStateOfAKeysRate) {
  const std::vector<HeaderField> fields = {{"x-api-key", slow_}};
  const auto first = Admit(fields);
  ASSERT_TRUE(first && first->rate);
  EXPECT_EQ(first->rate->limit, 2);
  EXPECT_EQ(first->rate->remaining, 1);
  EXPECT_EQ(first->rate->full_after, 30s);
  EXPECT_EQ(Admit(fields)->rate->remaining, 0);
  const auto refused = Admit(fields);
  ASSERT_FALSE(refused.has_value());
  ASSERT_TRUE(refused.error().rate);
  EXPECT_EQ(refused.error().rate->remaining, 0);
  EXPECT_EQ(refused.error().rate->full_after, 60s);
  EXPECT_FALSE(Admit({{"x-api-key", user_}})->rate);
  EXPECT_FALSE(Admit(fields, Access::kInference, /*counted=*/false)->rate);
}

TEST_F(AccessTest, NewKeysHoldFromTheNextRequestOn) {
  auto running = Admit({{"x-api-key", narrow_}});
  access_.Replace({});
  EXPECT_EQ(StatusOf({}), 200);
  access_.Replace(*KeyRing::Parse(lines_.substr(lines_.find("narrow"))));
  EXPECT_EQ(StatusOf({{"x-api-key", user_}}), 401);
  auto other = Admit({{"x-api-key", narrow_}});
  EXPECT_TRUE(other.has_value());
  EXPECT_EQ(StatusOf({{"x-api-key", narrow_}}), 429);  // the one that runs still counts
}

TEST_F(AccessTest, NothingIsKeptOfAKeyThatWasRemoved) {
  const std::vector<HeaderField> slow = {{"x-api-key", slow_}};
  while (StatusOf(slow) == 200) {
  }
  access_.Replace(*KeyRing::Parse(lines_));
  EXPECT_EQ(StatusOf(slow), 429) << "it stays";
  access_.Replace({});
  access_.Replace(*KeyRing::Parse(lines_));
  EXPECT_EQ(StatusOf(slow), 200);
}

TEST_F(AccessTest, TellsHowAKeyWasUsed) {
  EXPECT_EQ(access_.Uses().at(0).requests, 0U);
  EXPECT_FALSE(access_.Uses().at(0).last);
  const std::vector<HeaderField> user = {{"authorization", "Bearer " + user_}};
  EXPECT_EQ(StatusOf(user), 200);
  EXPECT_EQ(StatusOf(user, Access::kAdmin), 403);  // a refusal is no use
  const auto used = now_;
  now_ += 1s;
  const auto uses = access_.Uses();
  ASSERT_EQ(uses.size(), 4U);
  EXPECT_EQ(uses[0].name, "user");
  EXPECT_EQ(uses[0].requests, 1U);
  EXPECT_EQ(uses[0].last, used);
  EXPECT_EQ(uses[2].limits.parallel, 2);
  EXPECT_FALSE(uses[2].last);
}

}  // namespace
}  // namespace quire::server
