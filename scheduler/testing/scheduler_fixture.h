// What the tests of the scheduler share: one that starts at a fixed time and whose every plan is checked.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace quire::scheduler {

inline const Time kStart{std::chrono::hours(1)};
inline constexpr KeepAlive kNeverExpires{-1};

inline api::RequestId Id(uint64_t value) { return api::RequestId{value}; }

// The test reports loads and stops.
class SchedulerTest : public testing::Test {
 protected:
  void Make(int32_t models_max, int32_t queue_max = 100) {
    Make(SchedulerOptions{
        .models_max = models_max, .queue_max = queue_max, .default_keep_alive = std::chrono::minutes(5)});
  }
  void Make(SchedulerOptions options) { scheduler_.emplace(options); }
  Scheduler& scheduler() { return *scheduler_; }

  void Enqueue(uint64_t id, const std::string& key, std::optional<KeepAlive> keep_alive = {}) {
    ASSERT_TRUE(scheduler_->Enqueue(Id(id), key, keep_alive, kStart));
  }
  // What is admitted is sent at once.
  scheduler::Plan Plan(Time now = kStart) {
    auto plan = scheduler_->NextPlan(now);
    for (const api::RequestId id : plan.admit) scheduler_->Sent(id, now);
    EXPECT_EQ(scheduler_->CheckInvariants(), "");
    return plan;
  }
  // Loads a model with one request and admits it.
  void LoadWith(uint64_t id, const std::string& key, std::optional<KeepAlive> keep_alive = {}) {
    Enqueue(id, key, keep_alive);
    ASSERT_THAT(LoadsOf(Plan()), testing::ElementsAre(key));
    scheduler_->LoadDone(key, kStart);
    ASSERT_THAT(Plan().admit, testing::ElementsAre(Id(id)));
    scheduler_->Start(Id(id));
  }
  static std::vector<std::string> LoadsOf(const scheduler::Plan& plan) {
    std::vector<std::string> keys;
    for (const scheduler::Plan::Load& load : plan.load) keys.push_back(load.key);
    return keys;
  }

 private:
  std::optional<Scheduler> scheduler_;
};

}  // namespace quire::scheduler
