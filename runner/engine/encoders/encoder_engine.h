// The step loop of an encoder: texts to vectors, pairs of texts to scores.
//
// One thread, the engine thread, owns all of it. Texts are computed together, laid end to end, without
// padding (encoder_turns.h). A step is a turn of them: some slices of their pass, as many as its time allows
// (slice_budget.h); then others may have the next one. A text's result does not depend on what else is
// computed, neither with it nor in between. There are no caches. What a text has computed while others have
// their turns is in memory, which is bounded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_set>

#include "api/ipc/messages.h"
#include "runner/engine/encoders/encoder_turns.h"
#include "runner/engine/shares/prefill_budget.h"
#include "runner/engine/shares/slice_budget.h"
#include "runner/engine/steps/engine_input.h"
#include "runner/engine/steps/engine_stats.h"
#include "runner/engine/steps/mailbox.h"
#include "runner/kernels/thread_pool.h"
#include "runner/models/encoder.h"

namespace quire::runner::engine {

struct EncoderLimits {
  SliceTarget slice = {};
  // A turn ends with the first slice that ends after it: shorter ones would cost more than they give.
  std::chrono::nanoseconds turn = std::chrono::milliseconds(20);
  std::function<Clock::time_point()> clock = Clock::now;  // another one in tests
};

class EncoderEngine {
 public:
  // `engine_stats` outlives the engine. `emit` is called on the engine thread.
  EncoderEngine(std::unique_ptr<models::Encoder> encoder, int32_t threads, Mailbox<Input>& inbox,
                EngineStats& engine_stats, std::function<void(api::ipc::RequestEvent)> emit,
                EncoderLimits limits = {});

  // Serves until Stop.
  void Run();

 private:
  bool HandleInput(Input input);  // false for Stop
  void Enter(PromptBuilt built);
  void Cancel(api::RequestId id);
  void Step();
  models::EncoderPass StartPass(const EncoderTurns::Task& task);
  void FinishTask(EncoderTurns::Task& task);
  void Finish(const EncoderJob& job, std::span<const float> hidden, Clock::time_point began);
  void UpdateStats();

  const std::unique_ptr<models::Encoder> encoder_;
  const EncoderLimits limits_;
  ThreadPool pool_;
  Mailbox<Input>& inbox_;
  EngineStats& engine_stats_;
  const std::function<void(api::ipc::RequestEvent)> emit_;
  std::unordered_set<uint64_t> building_;  // arrived, not tokenized yet
  EncoderTurns turns_;
  SliceBudget slices_;
  PrefillBudget passes_;       // rows of a pass whose texts wait for each other
  models::EncoderPass spare_;  // memory of one that is done, of at most kEncoderRows rows
  uint64_t steps_ = 0;         // passes
};

// Memory that the encoder takes beside what the process has already.
api::ipc::MemoryEstimate EstimateEncoder(const models::Encoder& encoder, int64_t process);

}  // namespace quire::runner::engine
