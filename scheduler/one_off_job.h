// A runner that does one job on one model and exits.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "scheduler/runner_session.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr. The runner is killed and reaped in the background once it has
// answered, its time is up, or Stop() was called.
class OneOffJob : public RunnerSession {
 public:
  void Start();  // REQUIRES: held by shared_ptr

 protected:
  // For errors: "the model runner died while `reading the model`", "`reading the model took longer than` 3
  // s".
  struct Words {
    std::string_view died_while, too_long;
  };
  // `patience`: from when it is asked, and from each Progressed(), to the answer.
  OneOffJob(RunnerHost host, std::string name, std::vector<std::filesystem::path> models,
            std::chrono::nanoseconds patience, Words words);

  // Sends the request; what comes from now on is about it.
  virtual void SendRequest() = 0;
  // Whether OnRunnerMessage took the answer, or Fail the error that stands for it.
  virtual bool answered() const = 0;
  virtual void Fail(api::Error error) = 0;

  bool request_sent() const { return request_sent_; }
  void Progressed();

 private:
  static boost::asio::awaitable<void> Run(std::shared_ptr<OneOffJob> self);
  boost::asio::awaitable<api::Result<void>> AwaitAnswer();

  const std::chrono::nanoseconds patience_;
  const Words words_;
  Time deadline_{};
  bool request_sent_ = false;
};

}  // namespace quire::scheduler
