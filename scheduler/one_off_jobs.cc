#include "scheduler/one_off_jobs.h"

#include <utility>

#include "scheduler/clock.h"
#include "scheduler/conversion.h"
#include "scheduler/inspection.h"

namespace quire::scheduler {
namespace {

constexpr int32_t kInspectionsMax = 4;
constexpr int32_t kInspectionsOfOneMax = 2;
constexpr int32_t kConversionsMax = 1;  // each uses all cores

}  // namespace

// A running job with its slot; destroying it stops the runner.
class OneOffJobs::Running {
 public:
  Running(std::shared_ptr<OneOffJobs> jobs, std::shared_ptr<RunnerSession> session, JobSlots::Slot slot)
      : jobs_(std::move(jobs)), session_(std::move(session)), slot_(std::move(slot)) {
    jobs_->running_.insert(session_);
  }
  ~Running() {
    session_->Stop(/*at_once=*/true);
    jobs_->running_.erase(session_);
    jobs_->ended_.Notify();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const std::shared_ptr<OneOffJobs> jobs_;
  const std::shared_ptr<RunnerSession> session_;
  const JobSlots::Slot slot_;
};

class OneOffJobs::OwnedConversion : public ConversionJob {
 public:
  OwnedConversion(std::shared_ptr<OneOffJobs> jobs, std::shared_ptr<Conversion> conversion,
                  JobSlots::Slot slot)
      : conversion_(std::move(conversion)), running_(std::move(jobs), conversion_, std::move(slot)) {}
  Awaitable<api::Result<std::optional<float>>> Next() override { return Conversion::Next(conversion_); }

 private:
  const std::shared_ptr<Conversion> conversion_;
  const Running running_;
};

OneOffJobs::OneOffJobs(const RunnerHost& host, const Limits& limits)
    : host_(host),
      limits_(limits),
      inspections_(std::make_shared<JobSlots>(
          host.executor, JobSlots::Limits{kInspectionsMax, kInspectionsOfOneMax, limits.queue_max})),
      conversions_(std::make_shared<JobSlots>(
          host.executor, JobSlots::Limits{kConversionsMax, kConversionsMax, limits.queue_max})),
      ended_(host.executor) {}

// A description tells the context of a model that gets the memory it asks for. Where all models together may
// have less, it is asked again with what they may have: the context of a load here.
Awaitable<api::Result<api::ipc::Inspected>> OneOffJobs::Inspect(std::shared_ptr<OneOffJobs> self,
                                                                api::ipc::InspectModel request,
                                                                fair::PartyId party) {
  request.settings = self->limits_.SettingsForRunner();
  request.num_ctx = self->limits_.default_num_ctx;
  auto inspected = co_await InspectOnce(self, request, party);
  const int64_t limit = request.settings.memory_bytes;
  if (limit == 0 || !inspected || inspected->error || !inspected->memory) co_return inspected;
  const api::ipc::MemoryEstimate& memory = *inspected->memory;
  const int64_t room = limit - memory.weight_bytes - memory.scratch_bytes;
  if (memory.cache_bytes <= room || memory.cache_min_bytes > room) co_return inspected;
  request.settings.cache_bytes = room;
  const auto granted = co_await InspectOnce(self, std::move(request), std::move(party));
  if (granted && !granted->error) inspected->num_ctx = granted->num_ctx;
  co_return inspected;
}

Awaitable<api::Result<api::ipc::Inspected>> OneOffJobs::InspectOnce(std::shared_ptr<OneOffJobs> self,
                                                                    api::ipc::InspectModel request,
                                                                    fair::PartyId party) {
  auto acquired = co_await JobSlots::Acquire(self->inspections_, std::move(party));
  if (!acquired) co_return std::unexpected(std::move(acquired).error());
  const auto inspection =
      std::make_shared<Inspection>(self->host_, std::move(request), self->limits_.inspect_timeout);
  const Running running(self, inspection, *std::move(acquired));
  inspection->Start();
  co_return co_await Inspection::Answer(inspection);
}

Awaitable<api::Result<std::unique_ptr<ConversionJob>>> OneOffJobs::Convert(std::shared_ptr<OneOffJobs> self,
                                                                           api::ipc::ConvertModel request,
                                                                           std::shared_ptr<const void> kept,
                                                                           fair::PartyId party) {
  auto acquired = co_await JobSlots::Acquire(self->conversions_, std::move(party));
  if (!acquired) co_return std::unexpected(std::move(acquired).error());
  auto conversion = std::make_shared<Conversion>(self->host_, std::move(request), std::move(kept),
                                                 self->limits_.convert_patience);
  conversion->Start();
  co_return std::make_unique<OwnedConversion>(self, std::move(conversion), *std::move(acquired));
}

void OneOffJobs::Close(const api::Error& why) {
  inspections_->Close(why);
  conversions_->Close(why);
}

void OneOffJobs::Stop() {
  for (const auto& session : running_) session->Stop(/*at_once=*/true);
}

Awaitable<bool> OneOffJobs::End(std::shared_ptr<OneOffJobs> self,
                                std::chrono::steady_clock::time_point until) {
  bool waited = true;
  while (waited && !self->running_.empty() && Clock::now() < until)
    waited = co_await self->ended_.Wait(until);
  co_return waited;
}

}  // namespace quire::scheduler
