// What the scheduler is told, and what it decides.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/base/ids.h"
#include "scheduler/keep_alive_claims.h"

namespace quire::scheduler {

using Time = std::chrono::steady_clock::time_point;

struct SchedulerOptions {
  int32_t models_max = 3;   // < 1 counts as 1
  int32_t queue_max = 512;  // < 1 counts as 1
  KeepAlive default_keep_alive = std::chrono::minutes(5);
  int32_t model_queue_max = 0;  // < 1: no limit of its own
  int64_t memory_bytes = 0;     // of all runners together; < 1: no limit
  // The longest turn of quarantined requests and of those between them; 4 and 16 times as long for one that
  // was in runners of whose deaths nothing told the cause.
  KeepAlive probation_time = std::chrono::seconds(2);
  // The longest turn of a model that drains, as long as its answers get on in such turns: then they are
  // suspended. <= 0: never.
  KeepAlive drain_limit = std::chrono::seconds(10);
  // The shortest turn; that of an answer that has not run before is twice as long. A model that drains
  // admits what waits for it after each such pause: an endless answer, for which it cannot become idle,
  // holds up no short one longer. Without a drain_limit it admits nothing.
  KeepAlive drain_pause = std::chrono::milliseconds(200);
  KeepAlive queue_timeout = {};  // how long a request may wait until a runner starts it; <= 0: no limit
};

// The memory that a runner needs, known once it has read its model's metadata.
struct MemoryEstimate {
  int64_t fixed_bytes = 0;      // weights, scratch and the process itself
  int64_t cache_bytes = 0;      // preferred size of the caches
  int64_t cache_min_bytes = 0;  // smallest size of the caches that can serve a request
};

// Within which a runner died or hung.
struct DeathTime {
  Time from, to;
};

// Why a runner stopped.
enum class ExitCause : uint8_t {
  kRefused,  // it could not load the model, or was asked to stop: its requests fail
  kKilled,   // by an external signal: not caused by a request
  kCrashed,  // by itself, or it hung: perhaps because of a request
};

// Why a plan unloaded a model.
enum class UnloadReason : uint8_t {
  kExpired,     // unused for its keep-alive
  kUnloaded,    // requested by name
  kModelLimit,  // another model needed its slot
  kMemory,      // or its memory
  kTooLarge,    // there will never be the memory for it
  kCancelled,   // no request waited for its load any more
  kSuspended,   // it made room for others for too long: its requests wait for the next runner
};

// Decisions already taken: the caller must carry out every one of them.
struct Plan {
  struct Load {
    std::string key;
    api::RequestId first;  // the oldest waiting request; kNoRequest: pinned, and its runner died
  };
  struct MemoryGrant {
    std::string key;
    int64_t cache_bytes = 0;
  };
  struct TooLarge {
    api::RequestId id;
    int64_t bytes = 0;         // that its model needs at least
    int64_t pinned_bytes = 0;  // granted to models that are pinned against it
  };
  static constexpr api::RequestId kNoRequest{UINT64_MAX};  // newer than every request

  std::vector<std::string> unload;        // stop the runner, then report RunnerReaped
  std::vector<api::RequestId> suspended;  // of models to unload: they wait for the next runner
  std::vector<Load> load;  // start a runner, then report LoadDone, or RunnerStopping and RunnerReaped
  std::vector<api::RequestId> admit;      // send to the loaded runner
  std::vector<MemoryGrant> grants;        // approve the load with this cache size
  std::vector<api::RequestId> reject;     // dropped: every model slot holds a pinned model
  std::vector<TooLarge> too_large;        // dropped: more memory than there will ever be
  std::vector<api::RequestId> displaced;  // dropped: another one has the place that each had in the queue
  std::vector<api::RequestId> expire;     // dropped: no runner started them within queue_timeout
  std::optional<Time> wake_at;            // plan again at this time even if nothing happens

  void WakeBy(Time time) {
    if (!wake_at || time < *wake_at) wake_at = time;
  }
};

}  // namespace quire::scheduler
