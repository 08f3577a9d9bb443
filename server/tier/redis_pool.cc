#include "server/tier/redis_pool.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <utility>

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks for connections that the server closed, and between two tries to make one.
constexpr std::chrono::milliseconds kLook(1000);
constexpr std::chrono::milliseconds kTry(100);

}  // namespace

RedisPool::RedisPool(Options options)
    : options_(std::move(options)), breaker_(options_.retry_after), thread_([this] {
        pthread_setname_np(pthread_self(), "quire-redis-in");
        Run();
      }) {}

RedisPool::~RedisPool() {
  {
    const api::MutexLock lock(mutex_);
    stopping_ = true;
    if (next_) next_->Abort();
    wake_.notify_all();
  }
  thread_.join();
}

bool RedisPool::connected() const {
  const api::MutexLock lock(mutex_);
  return !idle_.empty() || borrowed_ > 0;
}

uint64_t RedisPool::failures() const {
  const api::MutexLock lock(mutex_);
  return failures_;
}

void RedisPool::RemoveClosed() {
  std::erase_if(idle_, [](const auto& client) { return client->closed_by_peer(); });
}

void RedisPool::Failed(std::string_view what) {
  if (!breaker_.Failed(Clock::now()) || std::exchange(reported_, true)) return;
  spdlog::warn("snapshot tier: Redis is left alone error=\"{}\"", what);
}

void RedisPool::ReportFailure(std::string_view what) {
  const api::MutexLock lock(mutex_);
  Failed(what);
}

std::unique_ptr<RedisClient> RedisPool::Borrow() {
  const api::MutexLock lock(mutex_);
  RemoveClosed();
  if (idle_.size() <= kReady) wake_.notify_all();
  if (idle_.empty() || (breaker_.open() && !breaker_.MayTry(Clock::now()))) return nullptr;
  auto client = std::move(idle_.back());
  idle_.pop_back();
  ++borrowed_;
  return client;
}

void RedisPool::Return(std::unique_ptr<RedisClient> client, bool answered) {
  const api::MutexLock lock(mutex_);
  --borrowed_;
  if (!answered) {
    Failed("too slow");
    wake_.notify_all();
    return;
  }
  breaker_.Succeeded();
  if (std::exchange(reported_, false)) spdlog::info("snapshot tier: Redis answers again");
  if (client->connected() && idle_.size() < kIdleMax) idle_.push_back(std::move(client));
}

bool RedisPool::Connect(RedisClient& client) {
  bool was_open = false;
  {
    const api::MutexLock lock(mutex_);
    was_open = breaker_.open();
    if (!breaker_.MayTry(Clock::now())) return false;
  }
  const auto connected = client.Connect(Clock::now() + options_.connect_time);
  const api::MutexLock lock(mutex_);
  if (stopping_) return false;
  if (connected) {
    if (was_open) breaker_.AllowOne();
    return true;
  }
  ++failures_;
  Failed(connected.error().message);
  return false;
}

void RedisPool::Run() {
  api::UniqueLock lock(mutex_);
  while (!stopping_) {
    RemoveClosed();
    if (idle_.size() >= kReady) {
      wake_.wait_for(lock, kLook);
      continue;
    }
    next_ = std::make_unique<RedisClient>(options_.address);
    RedisClient& next = *next_;
    lock.unlock();
    const bool connected = Connect(next);
    lock.lock();
    if (connected) {
      idle_.push_back(std::move(next_));
    } else if (!stopping_) {
      wake_.wait_for(lock, kTry, [this]() REQUIRES(mutex_) { return stopping_; });
    }
  }
}

}  // namespace quire::server
