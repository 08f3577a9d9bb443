// Requests whose prompts are to be prepared, and in which order.
//
// What a preparation costs is known only when it is done. A light request (a short text without a format, a
// template or schemas of tools) costs milliseconds; any other one is tried for a short time first (a long
// text is not), then for longer, and only then for all of its time. Each try is a lane and starts over. So a
// request that costs little waits for tries of others, and never for all that an expensive one takes. A
// party's CPU time in all lanes is one account (api/base/fair/); its requests in a lane keep their order.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/base/fair/fair_queue.h"
#include "api/base/mutex.h"
#include "api/ipc/messages.h"

namespace quire::runner::engine {

// By the cost of a try.
enum class Lane : uint8_t { kLight, kShort, kMedium, kLong };

struct PreparationJob {
  api::ipc::Submit submit;
  std::chrono::steady_clock::time_point arrived;
  std::shared_ptr<std::atomic<bool>> canceled = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<uint64_t>> checks =
      std::make_shared<std::atomic<uint64_t>>(0);  // of a WorkBudget
  Lane lane = Lane::kLight;                        // Push() sets it
  std::chrono::steady_clock::duration tried = {};  // by the clock, in lanes before this one
  bool waits_for_formats = false;                  // it goes on only when its party may use one more
};

// Any thread. Its length is bounded by what the daemon submits at once.
class PreparationQueue {
 public:
  static constexpr size_t kLightBytesMax = size_t{64} << 10;  // of texts and tools
  static Lane LaneOf(const api::Request& request);            // where it begins

  void Push(PreparationJob job);
  // Waiting: drops the job. Being prepared: sets `canceled`.
  void Cancel(api::RequestId id);
  // Whether a party may use one more format; any thread. Empty: always.
  using MayUseFormat = std::function<bool(const fair::PartyId& party)>;
  // Waits for a job of one of these lanes, the first preferred; nothing once Stop() was called. The calling
  // thread's CPU clock counts until Finish(), Demote() or Wait().
  std::optional<PreparationJob> Pop(std::span<const Lane> lanes, const MayUseFormat& may_use_format = {});
  // On the thread that popped it.
  void Finish(api::RequestId id);
  // As Finish(), of a job that took all that its lane gives: it waits for the next lane. REQUIRES: not kLong.
  void Demote(PreparationJob job);
  // As Finish(), of a job for whose format there is no memory: when there is, it is tried again in its lane.
  void Wait(PreparationJob job);
  void Stop();

  // Asked once per heartbeat: jobs that nothing bounds. Their threads have counted no work between that many
  // questions, or have used more CPU time than this.
  static constexpr int kStuckQuestions = 10;  // a busy machine may give a thread no time for some seconds
  std::vector<api::RequestId> FindStuck(std::chrono::nanoseconds cpu_time);

 private:
  using Queue = fair::FairQueue<PreparationJob>;
  struct Running {
    Queue::Turn turn;
    api::RequestId id;
    std::shared_ptr<std::atomic<bool>> canceled;
    std::shared_ptr<std::atomic<uint64_t>> checks;
    clockid_t clock;
    std::chrono::nanoseconds begin;
    uint64_t checks_seen = 0;  // at the last question
    int unchanged = 0;         // questions since they rose
  };
  // A party has one for its jobs of a lane, and one for those of them that wait for formats.
  static constexpr uint64_t MemberOf(Lane lane, bool waits_for_formats) {
    return 2 * static_cast<uint64_t>(lane) + (waits_for_formats ? 1 : 0);
  }
  void PushJob(PreparationJob job) REQUIRES(mutex_);
  PreparationJob Begin(Queue::Next next) REQUIRES(mutex_);
  // Charges its party. REQUIRES: it is being prepared.
  void EndTry(api::RequestId id) REQUIRES(mutex_);
  void TryAgain(PreparationJob job);

  mutable api::Mutex mutex_;
  std::condition_variable changed_;
  Queue queue_ GUARDED_BY(mutex_){10'000'000};  // a quantum is a try of a short job, in nanoseconds
  std::vector<Running> running_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace quire::runner::engine
