// One-off jobs: inspections and conversions, each in a runner of its own.

#include <utility>

#include "api/base/reserved_memory.h"
#include "scheduler/dispatcher_impl.h"

namespace quire::scheduler {

// A running job's slot in its pool; destroying it stops the runner.
class Dispatcher::Impl::JobSlot {
 public:
  JobSlot(Self self, JobPool& pool, std::shared_ptr<RunnerSession> session)
      : self_(std::move(self)), pool_(pool), session_(std::move(session)) {
    pool_.running.insert(session_);
  }
  ~JobSlot() {
    const api::ReservedMemoryScope reserved;
    session_->Stop(/*at_once=*/true);
    pool_.running.erase(session_);
    pool_.changed.Notify();
    self_->requests_changed_.Notify();
  }
  JobSlot(const JobSlot&) = delete;
  JobSlot& operator=(const JobSlot&) = delete;

 private:
  const Self self_;
  JobPool& pool_;
  const std::shared_ptr<RunnerSession> session_;
};

class Dispatcher::Impl::OwnedConversion : public ConversionJob {
 public:
  OwnedConversion(const Self& self, std::shared_ptr<Conversion> conversion)
      : conversion_(std::move(conversion)), slot_(self, self->conversions_, conversion_) {}
  Awaitable<api::Result<std::optional<float>>> Next() override { return Conversion::Next(conversion_); }

 private:
  const std::shared_ptr<Conversion> conversion_;
  const JobSlot slot_;
};

// A description tells the context of a model that gets the memory it asks for. Where all models together may have less, it is
// asked again with what they may have: the context of a load here.
Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Impl::Inspect(Self self,
                                                                      api::ipc::InspectModel request) {
  request.settings = self->SettingsForRunner();
  request.num_ctx = self->limits_.default_num_ctx;
  auto inspected = co_await InspectOnce(self, request);
  const int64_t limit = self->memory_limit();
  if (limit == 0 || !inspected || inspected->error || !inspected->memory) co_return inspected;
  const api::ipc::MemoryEstimate& memory = *inspected->memory;
  const int64_t room = limit - memory.weight_bytes - memory.scratch_bytes;
  if (memory.cache_bytes <= room || memory.cache_min_bytes > room) co_return inspected;
  request.settings.cache_bytes = room;
  const auto granted = co_await InspectOnce(self, std::move(request));
  if (granted && !granted->error) inspected->num_ctx = granted->num_ctx;
  co_return inspected;
}

Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Impl::InspectOnce(Self self,
                                                                          api::ipc::InspectModel request) {
  if (auto may = co_await AwaitSlot(self, self->inspections_); !may) {
    co_return std::unexpected(std::move(may).error());
  }
  const auto inspection =
      std::make_shared<Inspection>(self->host_, std::move(request), self->limits_.inspect_timeout);
  const JobSlot slot(self, self->inspections_, inspection);
  inspection->Start();
  co_return co_await Inspection::Answer(inspection);
}

Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Dispatcher::Impl::Convert(
    Self self, api::ipc::ConvertModel request, std::shared_ptr<const void> kept) {
  if (auto may = co_await AwaitSlot(self, self->conversions_); !may) {
    co_return std::unexpected(std::move(may).error());
  }
  auto conversion = std::make_shared<Conversion>(self->host_, std::move(request), std::move(kept),
                                                 self->limits_.convert_patience);
  conversion->Start();
  co_return std::make_unique<OwnedConversion>(self, std::move(conversion));
}

}  // namespace quire::scheduler
