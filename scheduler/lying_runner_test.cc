// Runners that lie: true sequences of frames with random damage (a bit, a length, a frame twice, left out, or of another
// request). Nothing they send may harm the daemon, another model's answer, or a later request.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "scheduler/dispatcher.h"
#include "scheduler/testing/dispatcher_fixture.h"

namespace quire::scheduler {
namespace {

class LyingRunnerTest : public DispatcherFixture {
 protected:
  static int Seeds() {
    const char* asked = std::getenv("QUIRE_LYING_RUNNERS");
    return asked != nullptr ? std::atoi(asked) : 200;
  }
};

TEST_F(LyingRunnerTest, HarmsItsOwnRequestsOnly) {
  limits().loaded_models_max = 2;
  limits().queue_timeout = std::chrono::seconds(2);
  limits().stop_grace = std::chrono::seconds(1);
  auto bystander = StartReady(Spec("ok", "honest"), "answer 1000000");
  const int pid = bystander->runner_pid();
  int failed = 0;
  int whole = 0;
  for (int seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE(seed);
    const std::string mode = "lies-" + std::to_string(seed);
    auto submitted = loop().Wait(Submit(Spec(mode), "answer 20", KeepAlive(0)));
    const bool refused = !submitted || Finish(**submitted).failed;
    ++(refused ? failed : whole);
    submitted = std::unexpected(api::Error());
    const bool look = seed % 10 == 0;
    ASSERT_TRUE(!look || std::holds_alternative<api::TextDelta>(Next(*bystander)));
    ASSERT_EQ(bystander->runner_pid(), pid);
  }
  RecordProperty("failed", failed);
  RecordProperty("whole", whole);
  EXPECT_GT(failed, 0);
  EXPECT_GT(whole, 0) << "the damage leaves nothing to test";
  EXPECT_EQ(Generate(Spec("ok", "next"), "answer 2").text, "t0 t1 ");
}

}  // namespace
}  // namespace quire::scheduler
