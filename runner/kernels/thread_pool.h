// Fork-join over a fixed set of threads, for the work inside one engine step.
//
// Threads are in groups of at most 16, each of one NUMA node. A round gives every group a run of tasks and
// wakes the group; a thread that finds no task in its group takes one of another's. So while all groups have
// tasks, no more than a group's threads change the same cache line, and the same node reads the same weights
// in every step.
//
// Invariants
//   - A task runs exactly once. ParallelFor returns after the last one ended; the writes of tasks are then
//     visible.
//   - ParallelFor waits for tasks, never for threads: a worker that wakes late finds no task and delays
//     nothing.
//   - Which thread runs which task is not fixed, so a result must not depend on it.
//   - An idle pool uses no CPU: workers spin for some microseconds after the last task, then sleep.
//   - Groups without a task sleep on: few tasks use few threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "runner/kernels/numa_plan.h"

namespace quire::runner {

// Owned by the engine thread; ParallelFor is called by one thread at a time and never from inside a task.
class ThreadPool {
 public:
  // `threads` counts the caller, which takes part; 1 (or less) means no thread is started. The plan says
  // where the others run; where the kernel refuses, they run anywhere.
  explicit ThreadPool(int threads) : ThreadPool(threads, CurrentNumaPlan()) {}
  ThreadPool(int threads, const NumaPlan& plan);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // From now on adds one to `counter`, which outlives the pool, for every ParallelFor: how a watcher sees
  // that work goes on inside a long step.
  void CountIn(std::atomic<uint64_t>& counter) { counter_ = &counter; }

  // Lets the calling thread, which calls ParallelFor from now on, run at its place. Threads that it starts
  // later inherit that.
  void PinCaller() const {
    PinThisThread(caller_.processors);
    SetNodeOfThisThread(caller_.node);
  }

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  size_t groups() const { return groups_.size(); }

  // Calls fn(i) for every i in [0, tasks). Allocates nothing. REQUIRES: fn does not throw; tasks < 2^32.
  template <class Fn>
  void ParallelFor(size_t tasks, Fn&& fn) {
    using Callable = std::remove_reference_t<Fn>;
    if (counter_ != nullptr) counter_->fetch_add(1, std::memory_order_relaxed);
    const auto begin = std::chrono::steady_clock::now();
    if (tasks <= 1 || workers_.empty()) {
      for (size_t i = 0; i < tasks; ++i) fn(i);
    } else {
      ShareOut(tasks);
      Run(
          Reach::kAll, [](void* context, size_t i) { (*static_cast<Callable*>(context))(i); },
          const_cast<void*>(static_cast<const void*>(&fn)));
    }
    busy_ += std::chrono::steady_clock::now() - begin;
  }

  // Calls fn(node, i) for every i in [0, tasks) and every node of the plan, on threads of that node: memory
  // that they write first is the node's. A node without a thread in this pool is served by any. For loading:
  // neither CountIn() nor busy() see it. REQUIRES: fn does not throw; tasks times nodes < 2^32.
  template <class Fn>
  void OnEachNode(size_t tasks, Fn&& fn) {
    if (nodes_ == 1) return ParallelFor(tasks, [&](size_t i) { fn(size_t{0}, i); });
    auto call = [&](size_t i) { fn(i / tasks, i % tasks); };
    if (tasks == 0) return;
    ShareOutByNode(tasks);
    RunOnNodes([](void* context, size_t i) { (*static_cast<decltype(call)*>(context))(i); }, &call);
    for (size_t node = 0; node < nodes_; ++node) {
      if (!HasThreads(node)) ParallelFor(tasks, [&](size_t i) { fn(node, i); });
    }
  }

  // Time that callers spent in ParallelFor so far. For the thread that calls it.
  std::chrono::nanoseconds busy() const { return busy_; }

 private:
  using Trampoline = void (*)(void*, size_t);
  enum class Reach : uint8_t { kAll, kOwnNode };  // whose tasks a thread takes

  // Threads of one node, and what the current round has for them. Written by the caller before `cursor`
  // moves; a thread uses what it read only after a successful claim in `cursor`, which fails when the round
  // is over.
  struct alignas(64) Group {
    size_t node = 0;
    uint32_t threads = 0;
    uint32_t share = 0;              // tasks of the round that is being prepared; the caller's
    std::atomic<uint32_t> first{0};  // task
    std::atomic<uint32_t> tasks{0};
    alignas(64) std::atomic<uint64_t> cursor{0};  // round << 32 | tasks not yet claimed
    alignas(64) std::atomic<uint32_t> done{0};    // tasks of this round that ended
    alignas(64) std::atomic<uint32_t> round{0};   // what sleeping workers wait on
  };

  // Shares of `tasks` tasks, in proportion to threads, in as few groups as have a thread for each task.
  void ShareOut(size_t tasks);
  // `tasks` tasks for every node that has threads.
  void ShareOutByNode(size_t tasks);
  void Run(Reach reach, Trampoline call, void* context);
  // Run, with the caller on its node meanwhile.
  void RunOnNodes(Trampoline call, void* context);
  bool HasThreads(size_t node) const;
  void WorkerLoop(size_t group);
  // Takes and runs tasks of round `round`, first those of the own group, until none is left or a later round
  // has begun.
  void DrainAll(size_t own, uint32_t round);
  void Drain(Group& group, uint32_t round);

  const ThreadPlace caller_;
  const size_t nodes_;
  std::vector<Group> groups_;  // the caller is in the first

  // The current round's job, as in Group.
  std::atomic<Trampoline> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<Reach> reach_{Reach::kAll};
  uint32_t round_ = 0;  // the caller's

  alignas(64) std::atomic<uint32_t> unfinished_{0};  // groups with tasks that have not ended
  std::atomic<bool> stopping_{false};
  std::chrono::nanoseconds busy_{};  // the caller's

  std::atomic<uint64_t>* counter_ = nullptr;

  std::vector<std::thread> workers_;  // last: its threads use everything above
};

}  // namespace quire::runner
