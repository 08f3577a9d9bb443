#include "server/routes/prefill_estimates.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

using namespace std::chrono_literals;

const PrefillEstimates::TimePoint kStart{};

RequestLog Waiting(uint64_t bytes) {
  RequestLog log;
  log.stored_model = "m:latest";
  log.body_bytes = bytes;
  log.start = kStart;
  return log;
}

// 4 bytes a token, half of the tokens cached, 100 computed tokens a second.
RequestLog Ended() {
  RequestLog log = Waiting(8000);
  log.queued = 0ns;
  log.prompt_tokens = 2000;
  log.cached_tokens = 1000;
  log.prompt_compute = 10s;
  log.finish = "stop";
  return log;
}

TEST(PrefillEstimates, PredictWaitingRequestsFromTheSizeOfTheirBodies) {
  PrefillEstimates estimates;
  estimates.Observe(Ended());
  EXPECT_DOUBLE_EQ(estimates.RemainingSeconds(Waiting(4000), kStart + 3s), 5);
  EXPECT_DOUBLE_EQ(estimates.BytesPerSecond("m:latest"), 400);
  EXPECT_EQ(estimates.BytesPerSecond("other"), 0);
}

TEST(PrefillEstimates, AreExactOnceThePromptIsBuilt) {
  PrefillEstimates estimates;
  estimates.Observe(Ended());
  RequestLog log = Waiting(4000);
  log.queued = 1s;
  log.prompt_tokens = 700;
  log.cached_tokens = 100;
  EXPECT_DOUBLE_EQ(estimates.RemainingSeconds(log, kStart + 3s), 4);
  EXPECT_EQ(estimates.RemainingSeconds(log, kStart + 60s), 0);
  log.first_token = 7s;
  EXPECT_EQ(estimates.RemainingSeconds(log, kStart + 3s), 0);
}

TEST(PrefillEstimates, BeforeAnythingWasMeasuredTimeSoFarIsExpectedAgain) {
  const PrefillEstimates estimates;
  EXPECT_DOUBLE_EQ(estimates.RemainingSeconds(Waiting(10), kStart + 3s), 3);
}

TEST(PrefillEstimates, RequestsThatAreNoPromptsCountNothing) {
  PrefillEstimates estimates;
  estimates.Observe(RequestLog());
  EXPECT_EQ(estimates.RemainingSeconds(RequestLog(), kStart + 3s), 0);
  RequestLog cached = Ended();
  cached.cached_tokens = 2000;
  estimates.Observe(cached);
  EXPECT_EQ(estimates.BytesPerSecond("m:latest"), 0);
}

}  // namespace
}  // namespace quire::server
