// The simulation over frames and sockets: RunnerLink and the codec as they are (testing/frame_port.cc).
#include "scheduler/testing/dispatcher_simulation.h"

#include <gtest/gtest.h>

namespace quire::scheduler {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSeeds = 100;
#else
constexpr uint64_t kSeeds = 1000;
#endif

TEST(DispatcherSimulation, EveryRequestEndsAsItShould) { EXPECT_EQ(simulation::RunSeeds(kSeeds), ""); }

TEST(DispatcherSimulation, FollowsFromItsSeed) {
  EXPECT_EQ(simulation::CheckThatAllFollowsFromTheSeed(20), "");
}

}  // namespace
}  // namespace quire::scheduler
