#include "server/memory_reserve.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

namespace quire::server {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr size_t kReserve = 32 * kMebibyte;
constexpr size_t kBlock = 4 * kMebibyte;  // mapped by itself, so that it comes and goes with its memory

// Whatever this process has now is all it may ever have.
void LimitMemory() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * 4096 + 2 * kMebibyte, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(9);
}

// Blocks that can be allocated until std::bad_alloc.
int FillMemory(std::vector<std::unique_ptr<char[]>>& blocks) {
  int count = 0;
  try {
    while (count < 1000) {
      blocks.push_back(std::make_unique_for_overwrite<char[]>(kBlock));
      ++count;
    }
  } catch (const std::bad_alloc&) {
  }
  return count;
}

[[noreturn]] void UseTheReserve() {
  std::vector<std::unique_ptr<char[]>> blocks;
  blocks.reserve(2000);
  MemoryReserve reserve(kReserve);
  LimitMemory();
  bool right = !MemoryReserve::given_up();
  const int first = FillMemory(blocks);
  right = right && first >= 6 && first <= 8;  // 32 MiB in blocks of 4, whose headers take one of them
  right = right && MemoryReserve::given_up() && reserve.Refill() &&
          MemoryReserve::given_up();  // there is no memory
  blocks.clear();
  right = right && reserve.Refill() && !MemoryReserve::given_up() && !reserve.Refill();
  right = right && FillMemory(blocks) == first;
  std::fputs(right ? "right" : "wrong", stderr);
  std::_Exit(right ? 0 : 1);
}

TEST(MemoryReserveDeathTest, LetsAFailingAllocationSucceedOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs all of the address space";
#endif
  EXPECT_EXIT(UseTheReserve(), ::testing::ExitedWithCode(0), "right");
}

}  // namespace
}  // namespace quire::server
