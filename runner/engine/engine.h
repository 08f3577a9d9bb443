// The step loop of one loaded model: admits prepared requests, computes ragged batches, and emits events.
//
// One thread, the engine thread, owns all of it: caches, sequences and batch. Each step takes every decoding
// sequence and prompt chunks up to a token budget (step_plan.h), so that a long prompt never holds up running
// streams for more than one step.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_set>
#include <variant>
#include <vector>

#include "api/ipc.h"
#include "cache/hybrid_cache.h"
#include "runner/engine/generation.h"
#include "runner/engine/loaded_model.h"
#include "runner/engine/mailbox.h"
#include "runner/engine/prepare.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::engine {

// ---- what other threads post to the engine ----

// The daemon submitted a request; its prompt is being prepared.
struct Arrived {
  api::RequestId id;
};
// Its prompt is ready, or the error that ends it.
struct Prepared {
  api::RequestId id;
  api::Request request;
  api::Result<PreparedPrompt> prompt;
  Clock::time_point arrived;
};
struct Stop {};

using Input = std::variant<Arrived, Prepared, api::ipc::Credit, api::ipc::Cancel, Stop>;

struct EngineLimits {
  int32_t running_max = 16;      // sequences in a batch
  int32_t prefill_tokens = 128;  // prompt tokens per step
  int64_t cache_tokens = 0;      // tokens the caches hold over all sequences
};

class Engine {
 public:
  // `send` may be called at any time on the engine thread.
  static api::Result<std::unique_ptr<Engine>> Create(LoadedModel model, EngineLimits limits, int32_t threads,
                                                     Mailbox<Input>& inbox,
                                                     std::function<void(api::ipc::ToDaemon)> send);

  // Serves until Stop. Sends a Beat every second and after every 64 steps.
  void Run();

  int64_t cache_bytes() const { return static_cast<int64_t>(cache_->stats().capacity_bytes); }

 private:
  Engine(LoadedModel model, EngineLimits limits, int32_t threads, Mailbox<Input>& inbox,
         std::function<void(api::ipc::ToDaemon)> send, std::unique_ptr<cache::HybridCache> cache);

  bool Take(Input input);  // false for Stop
  void Admit();
  bool HasRoomFor(const Prepared& request) const;
  int64_t WorstCaseTokens(const api::Request& request, const PreparedPrompt& prompt) const;
  void Start(Prepared request);
  std::vector<StepItem> PlanNext() const;
  void Step(const std::vector<StepItem>& items);
  void RemoveEnded();
  void SendBeat();
  void Emit(api::RequestId id, api::Event event);

  LoadedModel model_;
  const EngineLimits limits_;
  ThreadPool pool_;
  Mailbox<Input>& inbox_;
  const std::function<void(api::ipc::ToDaemon)> send_;
  std::unique_ptr<cache::HybridCache> cache_;  // outlives the sequences in running_

  struct Running {
    std::unique_ptr<Generation> generation;
    int64_t reserved_tokens = 0;
  };
  std::unordered_set<uint64_t> preparing_;  // arrived, not yet prepared
  std::deque<Prepared> waiting_;            // in order of preparation
  std::vector<Running> running_;            // in order of admission
  int64_t reserved_tokens_ = 0;
  std::vector<float> logits_;  // [logit rows, vocab]
  sampler::Workspace sampling_workspace_;
  uint64_t steps_ = 0;
};

}  // namespace quire::runner::engine
