#include "scheduler/dispatcher.h"

#include <utility>

#include "scheduler/dispatcher_impl.h"

namespace quire::scheduler {

Dispatcher::Dispatcher(const boost::asio::any_io_executor& executor, RunnerProgram runner_program,
                       const Limits& limits)
    : impl_(std::make_shared<Impl>(executor, std::move(runner_program), limits)) {}

Dispatcher::~Dispatcher() {
  impl_->End(/*at_once=*/true);
  impl_->StopOpening();
}

Awaitable<api::Result<std::unique_ptr<TokenStream>>> Dispatcher::Submit(
    ModelSpec spec, api::Request request, std::optional<KeepAliveClaim> keep_alive) {
  return Impl::Submit(impl_, std::move(spec), std::move(request), keep_alive);
}

Awaitable<api::Result<std::chrono::nanoseconds>> Dispatcher::Load(ModelSpec spec,
                                                                  std::optional<KeepAliveClaim> keep_alive,
                                                                  std::string party) {
  return Impl::Load(impl_, std::move(spec), keep_alive, std::move(party));
}

void Dispatcher::Unload(const std::string& key) { impl_->Unload(key); }

void Dispatcher::EndClaim(const std::string& key, const std::string& party) { impl_->EndClaim(key, party); }

Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Inspect(api::ipc::InspectModel request,
                                                                std::string party) {
  return Impl::Inspect(impl_, std::move(request), std::move(party));
}

Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Dispatcher::Convert(api::ipc::ConvertModel request,
                                                                           std::shared_ptr<const void> kept,
                                                                           std::string party) {
  return Impl::Convert(impl_, std::move(request), std::move(kept), std::move(party));
}

std::vector<LoadedModel> Dispatcher::Loaded() const { return impl_->Loaded(); }

std::vector<LoadingModel> Dispatcher::Loading() const { return impl_->Loading(); }
Awaitable<void> Dispatcher::InspectEngines(std::chrono::steady_clock::time_point until) {
  return Impl::InspectEngines(impl_, until);
}
std::vector<EngineView> Dispatcher::Engines() const { return impl_->Engines(); }
Awaitable<api::Result<CacheView>> Dispatcher::InspectCache(std::string key, api::ipc::InspectCache question,
                                                           int known_pid) {
  return Impl::InspectCache(impl_, std::move(key), std::move(question), known_pid);
}
std::optional<api::Error> Dispatcher::RefusalFor(const std::string& key, const std::string& party,
                                                 AnswerLength length) const {
  return impl_->RefusalFor(key, party, length);
}
int64_t Dispatcher::memory_limit() const { return impl_->memory_limit(); }

Counters Dispatcher::counters() const { return impl_->counters(); }

bool Dispatcher::Stuck(std::chrono::steady_clock::time_point now) const { return impl_->Stuck(now); }

std::string Dispatcher::CheckInvariants() const { return impl_->CheckInvariants(); }

Awaitable<void> Dispatcher::Drain(std::chrono::steady_clock::time_point deadline) {
  return Impl::Drain(impl_, deadline);
}

}  // namespace quire::scheduler
