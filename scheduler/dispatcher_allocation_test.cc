// Answers that go on in another runner when there is no memory for large requests: each fails alone.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/testing/dispatcher_fixture.h"

namespace {

constexpr size_t kLarge = size_t{8} << 20;
std::atomic<bool> large_ones_fail = false;

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = bytes >= kLarge && large_ones_fail ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace quire::scheduler {
namespace {

class DispatcherAllocationTest : public DispatcherFixture {};

TEST_F(DispatcherAllocationTest, WithoutMemoryForTwoLargeAnswersTheOthersGoOn) {
  std::vector<std::unique_ptr<TokenStream>> large;
  for (int i = 0; i < 2; ++i) {
    api::Request request = Raw("stall");
    request.go_template = std::string(size_t{16} << 20, 't');
    large.push_back(*loop().Run(dispatcher().Submit(Spec("ok"), std::move(request), {})));
    ASSERT_TRUE(std::holds_alternative<api::PromptReady>(Next(*large.back())));
  }
  auto small = StartReady(Spec("ok"), "answer 2000");
  large_ones_fail = true;
  ASSERT_EQ(::kill(small->runner_pid(), SIGKILL), 0);
  const Outcome outcome = Finish(*small);
  EXPECT_TRUE(outcome.finished);
  for (const auto& stream : large) {
    const Outcome failed = Finish(*stream);
    ASSERT_TRUE(failed.failed);
    EXPECT_EQ(failed.failed->code, api::ErrorCode::kUnavailable);
  }
  EXPECT_EQ(Generate(Spec("ok"), "answer 1").text, "t0 ");
  EXPECT_EQ(dispatcher().Loaded().at(0).running, 0);
  large_ones_fail = false;
}

}  // namespace
}  // namespace quire::scheduler
