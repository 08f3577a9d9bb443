#include "server/listen_plan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "server/options.h"

namespace quire::server {
namespace {

// Otherwise the daemon would listen at its own address, where nobody looks for it.
TEST(ListenPlan, SocketsThatAreNotThereAreAnError) {
  ::setenv("LISTEN_FDS", "100000", 1);
  ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
  const auto plan = PlanListen(Options());
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("LISTEN_FDS"), std::string::npos) << plan.error().message;
  EXPECT_TRUE(PlanListen(Options()).has_value());  // the variables are gone
}

}  // namespace
}  // namespace quire::server
