// The threads that prepare prompts: render, tokenize, compile the answer's grammar.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "runner/engine/engine.h"
#include "runner/engine/preparation_queue.h"
#include "runner/engine/prompt_builder.h"

namespace quire::runner::engine {

// Of one request's preparation, for each token of its context, beside the CPU time that the settings give.
inline constexpr std::chrono::nanoseconds kCpuTimePerToken{4000};

// Of a request whose context has this many tokens, or of the longest one; `cpu_time` is what the settings give.
constexpr std::chrono::nanoseconds PreparationTime(std::chrono::nanoseconds cpu_time,
                                                   int32_t context_tokens) {
  return cpu_time + kCpuTimePerToken * context_tokens;
}

// Prepares one request on this thread within its CPU time. kInvalidArgument: that is not enough. kUnavailable: there is not
// enough memory. Nothing: it was canceled.
std::optional<api::Result<BuiltPrompt>> Prepare(const PromptContext& context, const PreparationJob& job,
                                                std::chrono::nanoseconds cpu_time);

// Owns the threads. `queue`, `context` and the receivers outlive it.
class Preparation {
 public:
  struct Receivers {
    std::function<void(PromptBuilt)> built;
    std::function<void(api::ipc::RequestEvent)> described;  // of a request that wants its prompt only
  };
  Preparation(PreparationQueue& queue, const PromptContext& context, std::chrono::nanoseconds cpu_time,
              Receivers receivers);
  ~Preparation();  // stops the queue; waits for jobs that are being prepared
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

 private:
  void Run(PreparationQueue::Lane lane);
  void Work(PreparationJob& job);

  PreparationQueue& queue_;
  const PromptContext& context_;
  const std::chrono::nanoseconds cpu_time_;
  const Receivers receivers_;
  std::vector<std::jthread> threads_;
};

}  // namespace quire::runner::engine
