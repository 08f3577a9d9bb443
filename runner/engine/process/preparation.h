// The threads that prepare prompts: render, tokenize, compile the answer's grammar.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "runner/engine/process/preparation_queue.h"
#include "runner/engine/prompt/prompt_builder.h"
#include "runner/engine/steps/engine_input.h"

namespace quire::runner::engine {

// The CPU time that one request's preparation may take, and what it gets for each token of its context.
inline constexpr std::chrono::nanoseconds kPreparationCpuTime = std::chrono::seconds(1);
inline constexpr std::chrono::nanoseconds kCpuTimePerToken{4000};
// What it gets for each of its first images.
inline constexpr std::chrono::nanoseconds kCpuTimePerImage = std::chrono::seconds(1);
inline constexpr size_t kTimedImagesMax = 7;
// Its memory, likewise, in programs that count it (runner/work/work_memory.h).
inline constexpr size_t kPreparationBytes = size_t{256} << 20;
inline constexpr size_t kBytesPerToken = 256;

// The time of a request whose context has this many tokens, or of the longest one; `cpu_time` as
// kPreparationCpuTime.
constexpr std::chrono::nanoseconds PreparationTime(std::chrono::nanoseconds cpu_time,
                                                   int32_t context_tokens) {
  return cpu_time + kCpuTimePerToken * context_tokens;
}

constexpr size_t PreparationBytes(int32_t context_tokens) {
  return kPreparationBytes + kBytesPerToken * static_cast<size_t>(context_tokens);
}

// How many times as much a request may take that began in another runner: there its prompt was within the
// limits, perhaps with a format that was compiled before.
inline constexpr int kResumedTimes = 8;
inline constexpr size_t kResumedBytes = 2;

// The bound of any request.
constexpr std::chrono::nanoseconds PreparationMax(std::chrono::nanoseconds cpu_time, int32_t context_tokens) {
  return kResumedTimes * PreparationTime(cpu_time, context_tokens);
}

// What a try may take. Only one request at a time has all of its time and memory.
struct TryLimits {
  std::chrono::nanoseconds cpu_time;
  size_t bytes = kPreparationBytes;
};
// `all`: of a request.
TryLimits LimitsOf(Lane lane, const TryLimits& all);

// Prepares one request on this thread within its limits. kInvalidArgument: they are not enough. kUnavailable:
// there is not enough memory. Nothing: it was canceled.
std::optional<api::Result<BuiltPrompt>> Prepare(const PromptContext& context, const PreparationJob& job,
                                                const TryLimits& limits);

// Owns the threads. `queue`, `context` and the receivers outlive it.
class Preparation {
 public:
  struct Receivers {
    std::function<void(PromptBuilt)> built;
    std::function<void(api::ipc::RequestEvent)> described;   // of a request that wants its prompt only
    std::function<void(const PreparationJob&)> before = {};  // each try, for tests
  };
  // `nice_value`: of the caller.
  Preparation(PreparationQueue& queue, const PromptContext& context, std::chrono::nanoseconds cpu_time,
              Receivers receivers, int nice_value = 0);
  ~Preparation();  // stops the queue; waits for jobs that are being prepared
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

 private:
  void Run(std::span<const Lane> lanes);
  enum class End : uint8_t {
    kDone,
    kSpent,  // it takes more than its lane gives
    kWaits,  // others use the memory that its format needs
  };
  End Work(PreparationJob& job);
  // Without the deltas that the client has.
  End Describe(const PreparationJob& job, const TryLimits& limits);
  TryLimits LimitsFor(const PreparationJob& job) const;  // of its lane

  PreparationQueue& queue_;
  const PromptContext& context_;
  const std::chrono::nanoseconds cpu_time_;
  const Receivers receivers_;
  std::vector<std::jthread> threads_;
};

}  // namespace quire::runner::engine
