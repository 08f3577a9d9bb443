#include "server/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace quire::server {
namespace {

TEST(OpenFiles, ConnectionsLeaveSomeForTheRest) {
  EXPECT_EQ(ConnectionLimit(4096, 65536), 4096U);
  EXPECT_EQ(ConnectionLimit(100000, 65536), 57344U);
  EXPECT_EQ(ConnectionLimit(4096, 1024), 896U);
  EXPECT_EQ(ConnectionLimit(4096, 256), 192U);
  EXPECT_EQ(ConnectionLimit(4096, 64), 32U);
  EXPECT_EQ(ConnectionLimit(10, 1024), 10U);
  EXPECT_EQ(ConnectionLimit(10, 0), 1U);
}

TEST(OpenFiles, TheSoftLimitIsRaisedToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GT(before.rlim_max, 256U);
  rlimit low = before;
  low.rlim_cur = 128;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseOpenFileLimit(200), 200U);
  EXPECT_EQ(RaiseOpenFileLimit(100), 200U);  // never lowered
  EXPECT_EQ(RaiseOpenFileLimit(UINT64_MAX), before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace quire::server
