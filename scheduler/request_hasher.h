// Fingerprints of large requests, made on a thread of its own: one takes up to 150 ms.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "api/base/request.h"
#include "scheduler/poison_request_list.h"

namespace quire::scheduler {

// I/O thread only, but for what is marked.
class RequestHasher {
 public:
  struct Job {
    explicit Job(api::Request hashed) : request(std::move(hashed)) {}
    api::Request request;                           // the thread's until the job is done
    std::atomic<bool> unwanted = false;             // any thread: it ends without a fingerprint
    std::optional<RequestFingerprint> fingerprint;  // none: it was unwanted
    bool done = false;
  };

  explicit RequestHasher(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // Calls `deliver` on the executor when the job is done. What it captures may be destroyed on the thread.
  void Start(std::shared_ptr<Job> job, std::function<void()> deliver);

 private:
  const boost::asio::any_io_executor executor_;
  std::optional<boost::asio::thread_pool> thread_;  // from the first job on
};

}  // namespace quire::scheduler
