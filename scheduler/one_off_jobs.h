// One-off jobs: inspections and conversions, each in a runner of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "api/base/error.h"
#include "api/base/fair/party.h"
#include "scheduler/async_event.h"
#include "scheduler/dispatcher.h"
#include "scheduler/job_slots.h"
#include "scheduler/runner_session.h"

namespace quire::scheduler {

// I/O thread only; held by shared_ptr, also by jobs. Contracts: Backend.
class OneOffJobs {
 public:
  OneOffJobs(const RunnerHost& host, const Limits& limits);

  static Awaitable<api::Result<api::ipc::Inspected>> Inspect(std::shared_ptr<OneOffJobs> self,
                                                             api::ipc::InspectModel request,
                                                             fair::PartyId party);
  static Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Convert(std::shared_ptr<OneOffJobs> self,
                                                                        api::ipc::ConvertModel request,
                                                                        std::shared_ptr<const void> kept,
                                                                        fair::PartyId party);
  // No job starts from now on.
  void Close(const api::Error& why);
  // Stops all that run. REQUIRES: Close() was called.
  void Stop();
  // Returns once none runs, at `until` at the latest. False: the awaiting coroutine was canceled.
  static Awaitable<bool> End(std::shared_ptr<OneOffJobs> self, std::chrono::steady_clock::time_point until);

 private:
  class Running;
  class OwnedConversion;
  static Awaitable<api::Result<api::ipc::Inspected>> InspectOnce(std::shared_ptr<OneOffJobs> self,
                                                                 api::ipc::InspectModel request,
                                                                 fair::PartyId party);

  const RunnerHost host_;
  const Limits limits_;
  const std::shared_ptr<JobSlots> inspections_, conversions_;
  std::unordered_set<std::shared_ptr<RunnerSession>> running_;
  AsyncEvent ended_;  // notified when a job has
};

}  // namespace quire::scheduler
