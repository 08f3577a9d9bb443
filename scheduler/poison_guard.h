// Keeps requests that killed one runner after the other from the next one. The fingerprint of a large one
// takes up to 150 ms and is made on a thread of its own.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "api/base/error.h"
#include "api/base/request.h"
#include "scheduler/async_event.h"
#include "scheduler/poison_request_list.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr.
class PoisonGuard : public std::enable_shared_from_this<PoisonGuard> {
 public:
  explicit PoisonGuard(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // The request killed runners of the model: it is refused from now on.
  void Remember(const std::string& key, api::Request request);
  // False: Check() would find nothing.
  bool MayHave(const std::string& key, const api::Request& request) const {
    return list_.MayHave(key, request);
  }
  // The error of a request that has killed runners; kCancelled when the awaiting coroutine is canceled. A
  // large one is moved from `request` meanwhile. REQUIRES: `key` and `request` outlast it.
  static boost::asio::awaitable<api::Result<void>> Check(std::shared_ptr<PoisonGuard> self,
                                                         const std::string& key, api::Request& request);

 private:
  struct Job {
    Job(api::Request hashed, boost::asio::any_io_executor executor)
        : request(std::move(hashed)), ended(std::move(executor)) {}
    api::Request request;                           // the thread's until the job is done
    std::atomic<bool> unwanted = false;             // any thread: it ends without a fingerprint
    std::optional<RequestFingerprint> fingerprint;  // none: it was unwanted
    bool done = false;
    AsyncEvent ended;
  };
  // Calls `deliver` on the executor when the job is done. What it captures may be destroyed on the thread.
  void Hash(std::shared_ptr<Job> job, std::function<void()> deliver);

  const boost::asio::any_io_executor executor_;
  PoisonRequestList list_;
  std::optional<boost::asio::thread_pool> thread_;  // from the first job on
};

}  // namespace quire::scheduler
