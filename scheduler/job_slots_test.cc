#include "scheduler/job_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/testing/io_loop.h"

namespace quire::scheduler {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

class JobSlotsTest : public testing::Test {
 protected:
  using Job = std::shared_ptr<Task<Done>>;

  JobSlotsTest() { Make({.slots = 4, .slots_of_one = 2, .waiting_max = 100}); }
  void Make(JobSlots::Limits limits) { slots_ = std::make_shared<JobSlots>(loop_.executor(), limits); }
  // A job of the party that runs until End().
  Job Start(const std::string& party) {
    auto job = loop_.Spawn(Run(party));
    loop_.Poll();
    return job;
  }
  // Ends the job that started first of those that run.
  void End() {
    running_.pop_front();
    loop_.Poll();
  }
  std::vector<std::string> PopStarted() { return std::exchange(started_, {}); }
  IoLoop& loop() { return loop_; }
  JobSlots& slots() { return *slots_; }

  api::ErrorCode refusal_{};
  std::vector<std::string> started_;

 private:
  boost::asio::awaitable<void> Run(std::string party) {
    auto slot = co_await JobSlots::Acquire(slots_, fair::PartyNamed(party));
    if (!slot) {
      refusal_ = slot.error().code;
      co_return;
    }
    started_.push_back(party);
    running_.push_back(std::make_unique<JobSlots::Slot>(*std::move(slot)));
  }

  IoLoop loop_;
  std::shared_ptr<JobSlots> slots_;
  std::deque<std::unique_ptr<JobSlots::Slot>> running_;
};

TEST_F(JobSlotsTest, OnePartyLeavesSlotsForOthers) {
  for (int job = 0; job < 50; ++job) Start("bob");
  EXPECT_THAT(PopStarted(), ElementsAre("bob", "bob"));
  Start("alice");
  EXPECT_THAT(PopStarted(), ElementsAre("alice"));
}

TEST_F(JobSlotsTest, APartyThatComesIsNext) {
  for (int job = 0; job < 5; ++job) {
    Start("bob");
    Start("carol");
  }
  EXPECT_EQ(PopStarted().size(), 4U);
  for (int job = 0; job < 3; ++job) Start("alice");
  EXPECT_THAT(PopStarted(), IsEmpty());
  End();
  EXPECT_THAT(PopStarted(), ElementsAre("alice"));
  for (int job = 0; job < 6; ++job) End();
  for (const char* party : {"bob", "carol"})
    EXPECT_THAT(started_, Contains(party))
        << "jobs cost next to nothing here, so that alice has had her share";
}

TEST_F(JobSlotsTest, AJobThatIsGivenUpHoldsNoSlot) {
  for (int job = 0; job < 2; ++job) Start("bob");
  const Job waits = Start("bob"), next = Start("bob");
  waits->Cancel();
  loop().Poll();
  EXPECT_EQ(refusal_, api::ErrorCode::kCancelled);
  (void)PopStarted();
  End();
  EXPECT_THAT(PopStarted(), ElementsAre("bob"));
  const Job last = Start("bob");
  End();  // it has its slot, but not run yet
  EXPECT_EQ(slots().running(), 2);
  EXPECT_TRUE(next->done() && last->done());
}

TEST_F(JobSlotsTest, PartiesShareThePlacesToWait) {
  Make({.slots = 1, .slots_of_one = 1, .waiting_max = 4});
  for (int job = 0; job < 4; ++job) Start("bob");
  const Job newest = Start("bob");
  EXPECT_FALSE(newest->done());
  Start("bob");
  EXPECT_EQ(std::exchange(refusal_, {}), api::ErrorCode::kOverloaded);
  EXPECT_FALSE(newest->done());
  const Job alice = Start("alice");
  EXPECT_FALSE(alice->done());
  EXPECT_TRUE(newest->done()) << "it gives its place to a party that has less than its share";
  EXPECT_EQ(std::exchange(refusal_, {}), api::ErrorCode::kOverloaded);
  EXPECT_FALSE(Start("alice")->done());
  EXPECT_TRUE(Start("alice")->done()) << "it would have more than its share";
  EXPECT_EQ(std::exchange(refusal_, {}), api::ErrorCode::kOverloaded);
  slots().Close({api::ErrorCode::kUnavailable, "closed"});
  loop().Poll();
  EXPECT_TRUE(alice->done());
  EXPECT_EQ(refusal_, api::ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace quire::scheduler
