// Requests whose prompts are to be prepared, and in which order.
//
// Two lanes: a light request (a short text without a format, a template or schemas of tools) costs milliseconds, a heavy one
// up to its whole CPU time. The threads of the light lane take no heavy request, so that a short chat never waits behind an expensive schema. In
// a lane the party that used the least CPU time goes first, and within a party the oldest request.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/ipc/messages.h"
#include "runner/engine/fair_share.h"

namespace quire::runner::engine {

struct PreparationJob {
  api::ipc::Submit submit;
  std::chrono::steady_clock::time_point arrived;
  std::shared_ptr<std::atomic<bool>> canceled = std::make_shared<std::atomic<bool>>(false);
};

// Any thread. Its length is bounded by what the daemon submits at once.
class PreparationQueue {
 public:
  enum class Lane : uint8_t { kLight, kHeavy };
  static constexpr size_t kLightBytesMax = size_t{64} << 10;  // of texts and tools
  static Lane LaneOf(const api::Request& request);

  void Push(PreparationJob job);
  // Waiting: drops the job. Being prepared: sets `canceled`.
  void Cancel(api::RequestId id);
  // Waits for a job; nothing once Stop() was called. Light: takes from the light lane only. Heavy: prefers the heavy
  // one. The calling thread's CPU clock counts until Finish().
  std::optional<PreparationJob> Pop(Lane lane);
  // On the thread that popped it.
  void Finish(api::RequestId id);
  void Stop();

  // Some job has used more CPU time than this: whatever bounds it does not work.
  bool Exceeds(std::chrono::nanoseconds cpu_time) const;

 private:
  struct Running {
    api::RequestId id;
    std::string party;
    std::shared_ptr<std::atomic<bool>> canceled;
    clockid_t clock;
    std::chrono::nanoseconds begin;
  };
  std::deque<PreparationJob>& Waiting(Lane lane) { return waiting_[static_cast<size_t>(lane)]; }
  PreparationJob Take(std::deque<PreparationJob>& lane);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<PreparationJob>, 2>
      waiting_;  // by lane, oldest first; guarded by mutex_, as all below
  std::vector<Running> running_;
  FairShare shares_;
  bool stopped_ = false;
};

}  // namespace quire::runner::engine
