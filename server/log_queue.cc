#include "server/log_queue.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "api/base/mutex.h"

namespace quire::server {

struct LogQueue::State {
  State(Output out, Limits bounds) : output(std::move(out)), limits(bounds) {}

  void Add(Entry entry);
  void WriteAll();
  // Takes the next entries to write: the oldest, behind one for those that were dropped before it. Empty: the
  // end.
  std::vector<Entry> Next() EXCLUDES(mutex);

  const Output output;
  const Limits limits;
  api::Mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> entries GUARDED_BY(mutex);
  size_t bytes GUARDED_BY(mutex) = 0;  // of `entries`
  uint64_t dropped GUARDED_BY(mutex) = 0;
  uint64_t described GUARDED_BY(mutex) = 0;  // of those dropped
  bool ending GUARDED_BY(mutex) = false;
  std::atomic<size_t> pending = 0;  // entries not written yet; read without the mutex by signal handlers
};

namespace {

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kCrashWaits = 100;
constexpr timespec kCrashWait = {0, 5'000'000};

std::atomic<const std::atomic<size_t>*> crash_pending = nullptr;

size_t BytesOf(const LogQueue::Entry& entry) {
  size_t bytes = 0;
  for (const std::string& text : entry) bytes += text.size();
  return bytes;
}

// Only functions that a signal handler may call: the other thread does the writing.
void WaitAndCrash(int signal) {
  if (const std::atomic<size_t>* pending = crash_pending) {
    for (int i = 0; i<kCrashWaits&& * pending> 0; ++i) ::nanosleep(&kCrashWait, nullptr);
  }
  ::raise(signal);  // its default action was restored (SA_RESETHAND); delivered when this handler returns
}

}  // namespace

void LogQueue::State::Add(Entry entry) {
  const api::MutexLock lock(mutex);
  bytes += BytesOf(entry);
  entries.push_back(std::move(entry));
  ++pending;
  while (entries.size() > limits.entries || (bytes > limits.bytes && entries.size() > 1)) {
    bytes -= BytesOf(entries.front());
    entries.pop_front();
    ++dropped;
    --pending;
  }
  changed.notify_all();
}

std::vector<LogQueue::Entry> LogQueue::State::Next() {
  api::UniqueLock lock(mutex);
  changed.wait(lock, [this]() REQUIRES(mutex) { return !entries.empty() || ending; });
  std::vector<Entry> next;
  if (entries.empty()) return next;
  const uint64_t missing = dropped - std::exchange(described, dropped);
  next.push_back(std::move(entries.front()));
  entries.pop_front();
  bytes -= BytesOf(next.front());
  lock.unlock();
  if (missing > 0) next.insert(next.begin(), output.describe_dropped(missing));
  return next;
}

void LogQueue::State::WriteAll() {
  for (;;) {
    const std::vector<Entry> next = Next();
    if (next.empty()) return;
    for (const Entry& entry : next) output.write(entry);
    const api::MutexLock lock(mutex);
    --pending;
    changed.notify_all();
  }
}

LogQueue::LogQueue(Output output, Limits limits)
    : state_(std::make_shared<State>(std::move(output), limits)) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([state = state_] { state->WriteAll(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogQueue::~LogQueue() {
  Drain(kDrainTime);
  const api::MutexLock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
}

void LogQueue::Push(Entry entry) { state_->Add(std::move(entry)); }

bool LogQueue::Drain(std::chrono::nanoseconds limit) const {
  api::UniqueLock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [this] { return state_->pending == 0; });
}

uint64_t LogQueue::dropped() const {
  const api::MutexLock lock(state_->mutex);
  return state_->dropped;
}

void LogQueue::DrainAtCrash() const {
  crash_pending = &state_->pending;
  for (const int signal : kCrashes) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = WaitAndCrash;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace quire::server
