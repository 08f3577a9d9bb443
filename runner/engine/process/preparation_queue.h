// Requests whose prompts are to be prepared, and in which order.
//
// What a preparation costs is known only when it is done. A light request (a short text without a format, a
// template or schemas of tools) costs milliseconds; any other one is tried for a short time first (a long
// text is not), then for longer, and only then for all of its time. Each try is a lane and starts over. So a
// request that costs little waits for tries of others, and never for all that an expensive one takes. In a
// lane the party that used the least CPU time goes first, and within a party the request that came first. A
// party may be several people behind an address, who send light requests between 100 bytes and 64 KiB: each
// of these counts as if it had come later by a time that grows with its text.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/base/mutex.h"
#include "api/ipc/messages.h"
#include "runner/engine/shares/fair_share.h"

namespace quire::runner::engine {

// By the cost of a try.
enum class Lane : uint8_t { kLight, kShort, kMedium, kLong };
inline constexpr size_t kLanes = 4;

struct PreparationJob {
  api::ipc::Submit submit;
  std::chrono::steady_clock::time_point arrived;
  std::shared_ptr<std::atomic<bool>> canceled = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<uint64_t>> checks =
      std::make_shared<std::atomic<uint64_t>>(0);  // of a WorkBudget
  Lane lane = Lane::kLight;                        // Push() sets it
  std::chrono::steady_clock::duration tried = {};  // by the clock, in lanes before this one
  bool waits_for_formats = false;                  // it goes on only when its party may use one more
  std::chrono::steady_clock::time_point due =
      {};  // within a party and lane the first goes first; Push() sets it
};

// Any thread. Its length is bounded by what the daemon submits at once.
class PreparationQueue {
 public:
  static constexpr size_t kLightBytesMax = size_t{64} << 10;  // of texts and tools
  static Lane LaneOf(const api::Request& request);            // where it begins
  // A text of kLightBytesMax is passed by short ones that come within 16 s.
  static constexpr std::chrono::nanoseconds kDelayPerByte = std::chrono::microseconds(250);

  void Push(PreparationJob job);
  // Waiting: drops the job. Being prepared: sets `canceled`.
  void Cancel(api::RequestId id);
  // Whether a party may use one more format; any thread. Empty: always.
  using MayUseFormat = std::function<bool(const std::string& party)>;
  // Waits for a job of one of these lanes, the first preferred; nothing once Stop() was called. The calling
  // thread's CPU clock counts until Finish(), Demote() or Wait().
  std::optional<PreparationJob> Pop(std::span<const Lane> lanes, const MayUseFormat& may_use_format = {});
  // On the thread that popped it.
  void Finish(api::RequestId id);
  // As Finish(), of a job that took all that its lane gives: it waits for the next lane. REQUIRES: not kLong.
  void Demote(PreparationJob job);
  // As Finish(), of a job for whose format there is no memory: it waits in its lane, behind those that came
  // before.
  void Wait(PreparationJob job);
  void Stop();

  // Asked once per heartbeat: jobs that nothing bounds. Their threads have counted no work between that many
  // questions, or have used more CPU time than this.
  static constexpr int kStuckQuestions = 10;  // a busy machine may give a thread no time for some seconds
  std::vector<api::RequestId> FindStuck(std::chrono::nanoseconds cpu_time);

 private:
  struct Running {
    api::RequestId id;
    std::string party;
    std::shared_ptr<std::atomic<bool>> canceled;
    std::shared_ptr<std::atomic<uint64_t>> checks;
    clockid_t clock;
    std::chrono::nanoseconds begin;
    uint64_t checks_seen = 0;  // at the last question
    int unchanged = 0;         // questions since they rose
  };
  std::deque<PreparationJob>& Waiting(Lane lane) REQUIRES(mutex_) {
    return waiting_[static_cast<size_t>(lane)];
  }
  std::optional<PreparationJob> PopFrom(std::deque<PreparationJob>& lane, const MayUseFormat& may_use_format)
      REQUIRES(mutex_);
  bool SomeWaitForFormats(std::span<const Lane> lanes) REQUIRES(mutex_);
  void EndTry(PreparationJob job, Lane next);
  // Charges its party, which keeps its place among the parties. REQUIRES: it is being prepared.
  std::string ChargeTry(api::RequestId id) REQUIRES(mutex_);

  mutable api::Mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<PreparationJob>, kLanes> waiting_ GUARDED_BY(mutex_);  // by lane, oldest first
  std::vector<Running> running_ GUARDED_BY(mutex_);
  FairShare shares_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace quire::runner::engine
