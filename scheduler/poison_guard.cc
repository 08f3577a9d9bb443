#include "scheduler/poison_guard.h"

#include <boost/asio/post.hpp>

#include "scheduler/clock.h"

namespace quire::scheduler {

void PoisonGuard::Hash(std::shared_ptr<Job> job, std::function<void()> deliver) {
  if (!thread_) thread_.emplace(1);
  boost::asio::post(*thread_, [job = std::move(job), deliver = std::move(deliver), home = executor_] {
    if (!job->unwanted) job->fingerprint = FingerprintOf(job->request);
    boost::asio::post(home, [job, deliver] {
      job->done = true;
      deliver();
    });
  });
}

boost::asio::awaitable<api::Result<void>> PoisonGuard::Check(std::shared_ptr<PoisonGuard> self,
                                                             const std::string& key, api::Request& request) {
  struct JobOwner {  // ends with the client
    std::shared_ptr<Job> job;
    ~JobOwner() { job->unwanted = true; }
  };
  if (!IsSlowToHash(request)) co_return self->list_.Check(key, FingerprintOf(request), Clock::now());
  const JobOwner owner{std::make_shared<Job>(std::move(request), self->executor_)};
  self->Hash(owner.job, [job = owner.job] { job->ended.Notify(); });
  while (!owner.job->done) {
    const bool waited = co_await owner.job->ended.Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  request = std::move(owner.job->request);
  co_return self->list_.Check(key, *owner.job->fingerprint, Clock::now());
}

void PoisonGuard::Remember(const std::string& key, api::Request request) {
  if (!IsSlowToHash(request)) {
    list_.Remember(key, FingerprintOf(request), Clock::now());
    return;
  }
  list_.Announce(key, request, Clock::now());
  const auto job = std::make_shared<Job>(std::move(request), executor_);
  Hash(job, [weak = weak_from_this(), job, key] {
    if (const auto self = weak.lock()) self->list_.Remember(key, *job->fingerprint, Clock::now());
  });
}

}  // namespace quire::scheduler
