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

}  // namespace

ThreadPool::ThreadPool(int threads) {
  workers_.reserve(static_cast<size_t>(std::max(threads, 1) - 1));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(uint32_t tasks, Trampoline call, void* context) {
  const uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  call_.store(call, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  cursor_.store(Cursor(round, tasks), std::memory_order_release);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  Drain(round);
  for (uint32_t done = done_.load(std::memory_order_acquire); done != tasks;
       done = done_.load(std::memory_order_acquire)) {
    AwaitChange(done_, done);
  }
}

void ThreadPool::WorkerLoop() {
  uint32_t seen = 0;
  while (true) {
    AwaitChange(round_, seen);
    seen = round_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    Drain(seen);
  }
}

void ThreadPool::Drain(uint32_t round) {
  uint64_t cursor = cursor_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(cursor >> 32) == round && static_cast<uint32_t>(cursor) != 0) {
    const Trampoline call = call_.load(std::memory_order_relaxed);
    void* const context = context_.load(std::memory_order_relaxed);
    const uint32_t tasks = tasks_.load(std::memory_order_relaxed);
    // A claim that succeeds proves that the three values above are this round's: a task was left, and the
    // caller changes them only after every task of the round ended.
    if (!cursor_.compare_exchange_weak(cursor, cursor - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    call(context, tasks - static_cast<uint32_t>(cursor));
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) done_.notify_one();
    cursor = cursor_.load(std::memory_order_acquire);
  }
}

}  // namespace quire::runner
