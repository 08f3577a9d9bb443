// The step loop of an encoder: texts to vectors, pairs of texts to scores.
//
// One thread, the engine thread, owns all of it. Each step computes whole texts laid end to end, without padding, up to
// a fixed number of rows; parties take turns, each in its own order. A text's result does not depend on what else is
// in the step. There are no caches, and nothing is preempted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "api/ipc/messages.h"
#include "runner/engine/engine.h"
#include "runner/engine/engine_stats.h"
#include "runner/engine/mailbox.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/encoder.h"

namespace quire::runner::engine {

// Rows of a step, unless one text alone has more.
inline constexpr size_t kEncoderRows = 512;

class EncoderEngine {
 public:
  // `engine_stats` outlives the engine. `emit` is called on the engine thread.
  EncoderEngine(std::unique_ptr<models::Encoder> encoder, int32_t threads, Mailbox<Input>& inbox,
                EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit);

  // Serves until Stop.
  void Run();

 private:
  struct Job {
    api::RequestId id;
    std::vector<api::TokenId> tokens;
    std::vector<int32_t> types;
    int32_t dropped = 0, dimensions = 0;
    bool normalize = true, rank = false;
    Clock::time_point arrived;
  };
  struct Party {
    std::string name;
    std::deque<Job> jobs;
  };

  bool HandleInput(Input input);  // false for Stop
  void Enter(PromptBuilt built);
  void Cancel(api::RequestId id);
  std::vector<Job> PickJobs();
  void Step();
  void Finish(const Job& job, std::span<const float> hidden, Clock::time_point began);
  size_t waiting() const;
  void UpdateStats();

  const std::unique_ptr<models::Encoder> encoder_;
  ThreadPool pool_;
  Mailbox<Input>& inbox_;
  EngineStats& engine_stats_;
  const std::function<void(api::ipc::RequestEvent)> emit_;
  std::unordered_set<uint64_t> building_;  // arrived, not tokenized yet
  std::deque<Party> parties_;              // whose turn it is first; none is empty
  std::vector<float> hidden_;              // [rows, hidden]
  uint64_t steps_ = 0;
};

// Rows of the largest step.
int64_t EncoderRowsMax(const models::Encoder& encoder);
// Memory that the encoder takes beside what the process has already.
api::ipc::MemoryEstimate EstimateEncoder(const models::Encoder& encoder, int64_t process);

}  // namespace quire::runner::engine
