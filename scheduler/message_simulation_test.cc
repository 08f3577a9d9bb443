// The simulation over messages: as dispatcher_simulation_test.cc, but frames, sockets and RunnerLink's
// coroutines are left out (testing/message_port.cc), so that many more seeds run in the same time.
#include <gtest/gtest.h>

#include "scheduler/testing/dispatcher_simulation.h"

namespace quire::scheduler {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 200;
#else
constexpr uint64_t kSeeds = 3000;
#endif

TEST(MessageSimulation, EveryRequestEndsAsItShould) { EXPECT_EQ(simulation::RunSeeds(kSeeds), ""); }

TEST(MessageSimulation, FollowsFromItsSeed) { EXPECT_EQ(simulation::CheckThatAllFollowsFromTheSeed(20), ""); }

}  // namespace
}  // namespace quire::scheduler
