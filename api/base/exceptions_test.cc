#include "api/base/exceptions.h"

#include <gtest/gtest.h>

#include <csignal>
#include <exception>
#include <new>
#include <stdexcept>

namespace quire::api {
namespace {

void EndBy(const auto& thrown) noexcept {
  InstallTerminateHandler("program");
  std::rethrow_exception(std::make_exception_ptr(thrown));
}

TEST(TerminateHandlerDeathTest, WritesOneLine) {
  const testing::KilledBySignal aborted(SIGABRT);
  EXPECT_EXIT(EndBy(std::bad_alloc()), aborted, "^program: ends: out of memory\n$");
  EXPECT_EXIT(EndBy(std::runtime_error("why")), aborted, "^program: ends: why\n$");
}

}  // namespace
}  // namespace quire::api
