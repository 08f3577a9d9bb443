#include "runner/kernels/thread_pool.h"

#include <algorithm>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace quire::runner {
namespace {

// About 20 us on current x86: longer than the serial code between two parallel loops of a forward pass.
constexpr int kSpins = 1000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // waits about as long as x86's pause; yield does nothing on most
#else
  std::this_thread::yield();
#endif
}

constexpr uint64_t Cursor(uint32_t round, uint32_t left) { return (uint64_t{round} << 32) | left; }

// Returns once `value` differs from `old`: spins, then sleeps in the kernel.
void AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

// Places of one group: threads of a node, as many as share cache lines without waiting long for each other.
constexpr size_t kGroupThreads = 16;

// The sizes and nodes of the groups of these places, which are in the order of nodes.
struct GroupSize {
  size_t node;
  uint32_t threads;
};
std::vector<GroupSize> GroupsOf(const std::vector<ThreadPlace>& places) {
  std::vector<GroupSize> groups;
  for (size_t begin = 0; begin < places.size();) {
    const size_t node = places[begin].node;
    size_t end = begin;
    while (end < places.size() && places[end].node == node) ++end;
    const size_t count = (end - begin + kGroupThreads - 1) / kGroupThreads;  // of equal size, nearly
    for (size_t i = 0; i < count; ++i) {
      groups.push_back(
          {node, static_cast<uint32_t>((end - begin) * (i + 1) / count - (end - begin) * i / count)});
    }
    begin = end;
  }
  return groups;
}

}  // namespace

ThreadPool::ThreadPool(int threads, const NumaPlan& plan)
    : caller_(PlanThreads(plan, threads).front()), nodes_(std::max<size_t>(plan.nodes.size(), 1)) {
  const std::vector<ThreadPlace> places = PlanThreads(plan, threads);
  const std::vector<GroupSize> sizes = GroupsOf(places);
  groups_ = std::vector<Group>(sizes.size());
  for (size_t g = 0; g < sizes.size(); ++g) {
    groups_[g].node = sizes[g].node;
    groups_[g].threads = sizes[g].threads;
  }
  workers_.reserve(places.size() - 1);
  size_t group = 0, left = sizes[0].threads - 1;  // without the caller
  for (size_t i = 1; i < places.size(); ++i, --left) {
    while (left == 0) left = sizes[++group].threads;
    workers_.emplace_back([this, group, place = places[i]] {
      PinThisThread(place.processors);
      SetNodeOfThisThread(place.node);
      WorkerLoop(group);
    });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  for (Group& group : groups_) {
    group.round.fetch_add(1, std::memory_order_release);
    group.round.notify_all();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ShareOut(size_t tasks) {
  size_t used = 0, threads = 0;
  while (used < groups_.size() && threads < tasks) threads += groups_[used++].threads;
  size_t before = 0, first = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    before += groups_[g].threads;
    const size_t end = g < used ? tasks * before / threads : tasks;
    groups_[g].share = static_cast<uint32_t>(end - first);
    groups_[g].first.store(static_cast<uint32_t>(first), std::memory_order_relaxed);
    first = end;
  }
}

void ThreadPool::ShareOutByNode(size_t tasks) {
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].share = 0;
  for (size_t node = 0; node < nodes_; ++node) {
    size_t threads = 0;
    for (const Group& group : groups_) threads += group.node == node ? group.threads : 0;
    size_t before = 0, first = 0;
    for (Group& group : groups_) {
      if (group.node != node) continue;
      before += group.threads;
      const size_t end = tasks * before / threads;
      group.share = static_cast<uint32_t>(end - first);
      group.first.store(static_cast<uint32_t>(node * tasks + first), std::memory_order_relaxed);
      first = end;
    }
  }
}

void ThreadPool::Run(Reach reach, Trampoline call, void* context) {
  ++round_;
  call_.store(call, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  reach_.store(reach, std::memory_order_relaxed);
  uint32_t used = 0;
  for (const Group& group : groups_) used += group.share > 0 ? 1 : 0;
  unfinished_.store(used, std::memory_order_relaxed);
  for (Group& group : groups_) {
    if (group.share == 0) continue;
    group.tasks.store(group.share, std::memory_order_relaxed);
    group.done.store(0, std::memory_order_relaxed);
    group.cursor.store(Cursor(round_, group.share), std::memory_order_release);
  }
  for (Group& group : groups_) {
    if (group.share == 0) continue;
    group.round.store(round_, std::memory_order_release);
    group.round.notify_all();
  }
  DrainAll(0, round_);
  for (uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    AwaitChange(unfinished_, left);
  }
}

void ThreadPool::RunOnNodes(Trampoline call, void* context) {
  const PinnedScope here(caller_.processors);
  Run(Reach::kOwnNode, call, context);
}

bool ThreadPool::HasThreads(size_t node) const {
  return std::ranges::any_of(groups_, [node](const Group& group) { return group.node == node; });
}

void ThreadPool::WorkerLoop(size_t group) {
  uint32_t seen = 0;
  while (true) {
    AwaitChange(groups_[group].round, seen);
    seen = groups_[group].round.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    DrainAll(group, seen);
  }
}

void ThreadPool::DrainAll(size_t own, uint32_t round) {
  const size_t node = groups_[own].node;
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[(own + i) % groups_.size()];
    if (group.node == node || reach_.load(std::memory_order_relaxed) == Reach::kAll) Drain(group, round);
  }
}

void ThreadPool::Drain(Group& group, uint32_t round) {
  uint64_t cursor = group.cursor.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(cursor >> 32) == round && static_cast<uint32_t>(cursor) != 0) {
    const Trampoline call = call_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const uint32_t first = group.first.load(std::memory_order_relaxed);
    const uint32_t tasks = group.tasks.load(std::memory_order_relaxed);
    // A claim that succeeds proves that the values above are this round's: a task was left, and the caller
    // changes them only after every task of the round ended.
    if (!group.cursor.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
      continue;
    }
    call(context, first + tasks - static_cast<uint32_t>(cursor));
    if (group.done.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks &&
        unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      unfinished_.notify_one();
    }
    cursor = group.cursor.load(std::memory_order_acquire);
  }
}

}  // namespace quire::runner
