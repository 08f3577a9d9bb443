// One-off jobs: inspections and conversions, each in a runner of its own.

#include <utility>

#include "scheduler/dispatcher_impl.h"

namespace quire::scheduler {

// A running job's slot in its pool; destroying it stops the runner.
class Dispatcher::Impl::JobSlot {
 public:
  JobSlot(Self self, JobPool& pool, std::shared_ptr<RunnerSession> session, JobSlots::Slot slot)
      : self_(std::move(self)), pool_(pool), session_(std::move(session)), slot_(std::move(slot)) {
    pool_.running.insert(session_);
  }
  ~JobSlot() {
    session_->Stop(/*at_once=*/true);
    pool_.running.erase(session_);
    self_->requests_changed_.Notify();
  }
  JobSlot(const JobSlot&) = delete;
  JobSlot& operator=(const JobSlot&) = delete;

 private:
  const Self self_;
  JobPool& pool_;
  const std::shared_ptr<RunnerSession> session_;
  const JobSlots::Slot slot_;
};

class Dispatcher::Impl::OwnedConversion : public ConversionJob {
 public:
  OwnedConversion(const Self& self, std::shared_ptr<Conversion> conversion, JobSlots::Slot slot)
      : conversion_(std::move(conversion)), slot_(self, self->conversions_, conversion_, std::move(slot)) {}
  Awaitable<api::Result<std::optional<float>>> Next() override { return Conversion::Next(conversion_); }

 private:
  const std::shared_ptr<Conversion> conversion_;
  const JobSlot slot_;
};

// A description tells the context of a model that gets the memory it asks for. Where all models together may
// have less, it is asked again with what they may have: the context of a load here.
Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Impl::Inspect(Self self,
                                                                      api::ipc::InspectModel request,
                                                                      std::string party) {
  request.settings = self->SettingsForRunner();
  request.num_ctx = self->limits_.default_num_ctx;
  auto inspected = co_await InspectOnce(self, request, party);
  const int64_t limit = self->memory_limit();
  if (limit == 0 || !inspected || inspected->error || !inspected->memory) co_return inspected;
  const api::ipc::MemoryEstimate& memory = *inspected->memory;
  const int64_t room = limit - memory.weight_bytes - memory.scratch_bytes;
  if (memory.cache_bytes <= room || memory.cache_min_bytes > room) co_return inspected;
  request.settings.cache_bytes = room;
  const auto granted = co_await InspectOnce(self, std::move(request), std::move(party));
  if (granted && !granted->error) inspected->num_ctx = granted->num_ctx;
  co_return inspected;
}

Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Impl::InspectOnce(Self self,
                                                                          api::ipc::InspectModel request,
                                                                          std::string party) {
  auto acquired = co_await JobSlots::Acquire(self->inspections_.slots, std::move(party));
  if (!acquired) co_return std::unexpected(std::move(acquired).error());
  const auto inspection =
      std::make_shared<Inspection>(self->host_, std::move(request), self->limits_.inspect_timeout);
  const JobSlot slot(self, self->inspections_, inspection, *std::move(acquired));
  inspection->Start();
  co_return co_await Inspection::Answer(inspection);
}

Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Dispatcher::Impl::Convert(
    Self self, api::ipc::ConvertModel request, std::shared_ptr<const void> kept, std::string party) {
  auto acquired = co_await JobSlots::Acquire(self->conversions_.slots, std::move(party));
  if (!acquired) co_return std::unexpected(std::move(acquired).error());
  auto conversion = std::make_shared<Conversion>(self->host_, std::move(request), std::move(kept),
                                                 self->limits_.convert_patience);
  conversion->Start();
  co_return std::make_unique<OwnedConversion>(self, std::move(conversion), *std::move(acquired));
}

}  // namespace quire::scheduler
