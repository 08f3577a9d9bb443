// Requests on their way to runners: those that a plan admits are sent in slices, since encoding a large one
// takes milliseconds of the I/O thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "scheduler/request_table.h"
#include "scheduler/runner_table.h"
#include "scheduler/scheduler.h"
#include "scheduler/token_stream.h"

namespace quire::scheduler {

// Part of what executes plans. I/O thread only.
class Outbox {
 public:
  // `replan`: the scheduler's next plan may be another one.
  Outbox(Scheduler& scheduler, RequestTable& requests, RunnerTable& runners, std::function<void()> replan)
      : scheduler_(scheduler), requests_(requests), runners_(runners), replan_(std::move(replan)) {}

  bool empty() const { return unsent_.empty(); }
  void Add(const std::vector<api::RequestId>& admitted) {
    unsent_.insert(unsent_.end(), admitted.begin(), admitted.end());
  }
  // Sends a slice. True: another one is to follow, in a handler of its own. `carrier`: of the streams.
  bool Send(const std::weak_ptr<RequestCarrier>& carrier);
  // The runner of the model takes nothing more: the scheduler admits them again.
  void Drop(const std::string& key);
  void Clear() { unsent_.clear(); }

 private:
  size_t FrameBytesOf(api::RequestId id);
  bool Admit(api::RequestId id, const std::weak_ptr<RequestCarrier>& carrier);
  void DecideContext(RunningRequest& running, const api::ipc::ModelInfo& info) const;
  api::Result<std::unique_ptr<TokenStream>> SubmitTo(ModelRunner& runner, PendingRequest& pending,
                                                     const std::weak_ptr<RequestCarrier>& carrier);
  void RecordSent(api::RequestId id);
  bool Resume(api::RequestId id, RunningRequest& running);
  api::Result<void> ResumeIn(ModelRunner& runner, api::RequestId id, RunningRequest& running);

  Scheduler& scheduler_;
  RequestTable& requests_;
  RunnerTable& runners_;
  const std::function<void()> replan_;
  std::deque<api::RequestId> unsent_;  // oldest first
};

}  // namespace quire::scheduler
