#include "api/base/io_thread.h"

#include <gtest/gtest.h>

namespace quire::api {
namespace {

TEST(IoThread, OnlyTheMarkedThreadMayNotBlock) {
  AssertMayBlock();
  { const IoThreadMark mark; }
  AssertMayBlock();
  EXPECT_EQ(BlockingCallsOnIoThread(), 0u);
}

TEST(IoThread, ABlockingCallOnItIsFound) {
  const auto block = [] {
    const IoThreadMark mark;
    AssertMayBlock();
  };
#ifdef NDEBUG
  const uint64_t before = BlockingCallsOnIoThread();
  block();
  EXPECT_EQ(BlockingCallsOnIoThread(), before + 1);
#else
  EXPECT_DEATH(block(), "on the I/O thread");
#endif
}

}  // namespace
}  // namespace quire::api
