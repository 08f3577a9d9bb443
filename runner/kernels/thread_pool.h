// Fork-join over a fixed set of threads, for the work inside one engine step.
//
// Invariants
//   - A task runs exactly once. ParallelFor returns after the last one ended; the writes of tasks are then
//     visible.
//   - ParallelFor waits for tasks, never for threads: a worker that wakes late finds no task and delays
//     nothing.
//   - Which thread runs which task is not fixed, so a result must not depend on it.
//   - An idle pool uses no CPU: workers spin for some microseconds after the last task, then sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace quire::runner {

// Owned by the engine thread; ParallelFor is called by one thread at a time and never from inside a task.
class ThreadPool {
 public:
  // `threads` counts the caller, which takes part; 1 (or less) means no thread is started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // From now on adds one to `counter`, which outlives the pool, for every ParallelFor: how a watcher sees
  // that work goes on inside a long step.
  void CountIn(std::atomic<uint64_t>& counter) { counter_ = &counter; }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(i) for every i in [0, tasks). Allocates nothing. REQUIRES: fn does not throw; tasks < 2^32.
  template <class Fn>
  void ParallelFor(size_t tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    if (counter_ != nullptr) counter_->fetch_add(1, std::memory_order_relaxed);
    const auto begin = std::chrono::steady_clock::now();
    if (tasks <= 1 || workers_.empty()) {
      for (size_t i = 0; i < tasks; ++i) fn(i);
    } else {
      Run(
          static_cast<uint32_t>(tasks),
          [](void* context, size_t i) { (*static_cast<Callable*>(context))(i); },
          const_cast<void*>(static_cast<const void*>(&fn)));
    }
    busy_ += std::chrono::steady_clock::now() - begin;
  }

  // Time that callers spent in ParallelFor so far. For the thread that calls it.
  std::chrono::nanoseconds busy() const { return busy_; }

 private:
  using Trampoline = void (*)(void*, size_t);

  void Run(uint32_t tasks, Trampoline call, void* context);
  void WorkerLoop();
  // Takes and runs tasks of round `round` until none is left or a later round has begun.
  void Drain(uint32_t round);

  // The current round's job. Written by the caller before round_ moves; a worker uses what it read only after
  // a successful claim in cursor_, which fails when the round is over.
  std::atomic<Trampoline> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> tasks_{0};

  alignas(64) std::atomic<uint64_t> cursor_{0};  // round << 32 | tasks not yet claimed
  alignas(64) std::atomic<uint32_t> done_{0};    // tasks of this round that ended
  alignas(64) std::atomic<uint32_t> round_{0};   // what sleeping workers wait on
  std::atomic<bool> stopping_{false};
  std::chrono::nanoseconds busy_{};  // the caller's

  std::atomic<uint64_t>* counter_ = nullptr;

  std::vector<std::thread> workers_;  // last: its threads use everything above
};

}  // namespace quire::runner
