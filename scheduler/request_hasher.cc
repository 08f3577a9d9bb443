#include "scheduler/request_hasher.h"

#include <boost/asio/post.hpp>
#include <new>

#include "scheduler/persistent_post.h"

namespace quire::scheduler {
namespace {

void HashRequest(RequestHasher::Job& job) {
  if (job.unwanted) return;
  try {
    job.fingerprint = FingerprintOf(job.request);
  } catch (const std::bad_alloc&) {  // of the library that hashes it
    return;
  }
}

}  // namespace

void RequestHasher::Start(std::shared_ptr<Job> job, std::function<void()> deliver) {
  if (!thread_) thread_.emplace(1);
  // Held from the start, so that handing it over allocates nothing of its own.
  const auto ended = std::make_shared<std::function<void()>>(std::move(deliver));
  boost::asio::post(*thread_, [job = std::move(job), ended, home = executor_] {
    HashRequest(*job);
    PostPersistently(home, [job, ended] {
      job->done = true;
      (*ended)();
    });
  });
}

}  // namespace quire::scheduler
