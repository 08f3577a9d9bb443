#include "scheduler/request_hasher.h"

#include <boost/asio/post.hpp>

namespace quire::scheduler {

void RequestHasher::Start(std::shared_ptr<Job> job, std::function<void()> deliver) {
  if (!thread_) thread_.emplace(1);
  boost::asio::post(*thread_, [job = std::move(job), deliver = std::move(deliver), home = executor_] {
    if (!job->unwanted) job->fingerprint = FingerprintOf(job->request);
    boost::asio::post(home, [job, deliver] {
      job->done = true;
      deliver();
    });
  });
}

}  // namespace quire::scheduler
