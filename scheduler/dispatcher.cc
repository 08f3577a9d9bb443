#include "scheduler/dispatcher.h"

#include <ctime>
#include <utility>

#include "scheduler/clock.h"
#include "scheduler/one_off_jobs.h"
#include "scheduler/plan_executor.h"
#include "scheduler/poison_guard.h"

namespace quire::scheduler {
namespace {

const api::Error kShuttingDown{api::ErrorCode::kUnavailable, "the server is shutting down"};

// Removes a request from the queue on destruction, also when the waiting coroutine is destroyed.
class QueueTicket {
 public:
  QueueTicket(std::shared_ptr<PlanExecutor> plans, api::RequestId id) : plans_(std::move(plans)), id_(id) {}
  ~QueueTicket() { plans_->Withdraw(id_); }
  QueueTicket(const QueueTicket&) = delete;
  QueueTicket& operator=(const QueueTicket&) = delete;

 private:
  const std::shared_ptr<PlanExecutor> plans_;
  const api::RequestId id_;
};

const char* NameOf(UnloadReason reason) {
  switch (reason) {
    case UnloadReason::kExpired:
      return "expired";
    case UnloadReason::kUnloaded:
      return "unloaded";
    case UnloadReason::kModelLimit:
      return "model_limit";
    case UnloadReason::kMemory:
      return "memory";
    case UnloadReason::kTooLarge:
      return "too_large";
    case UnloadReason::kSuspended:
      return "suspended";
    case UnloadReason::kCancelled:
      return "cancelled";
  }
  return "";
}

using Plans = std::shared_ptr<PlanExecutor>;
using Jobs = std::shared_ptr<OneOffJobs>;

// Queues the request and waits for its answer. kCancelled: the awaiting coroutine was canceled.
Awaitable<api::Result<void>> Await(Plans plans, std::shared_ptr<PoisonGuard> poison,
                                   std::shared_ptr<PendingRequest> pending,
                                   std::optional<KeepAliveClaim> keep_alive) {
  pending->arrived = Clock::now();
  if (pending->request && poison->MayHave(pending->spec.key, *pending->request)) {
    auto checked = co_await PoisonGuard::Check(poison, pending->spec.key, *pending->request);
    if (!checked) co_return checked;
  }
  auto queued = plans->Enqueue(pending, keep_alive);
  if (!queued) co_return queued;
  const QueueTicket ticket(plans, pending->id);
  while (!pending->answer) {
    const bool waited = co_await pending->answered.Wait();
    if (!waited) co_return api::Fail(api::ErrorCode::kCancelled, "the client disconnected");
  }
  co_return api::Result<void>();
}

Awaitable<api::Result<std::unique_ptr<TokenStream>>> AwaitStream(Plans plans,
                                                                 std::shared_ptr<PoisonGuard> poison,
                                                                 std::shared_ptr<PendingRequest> pending,
                                                                 std::optional<KeepAliveClaim> keep_alive) {
  if (!pending->answer) {
    const auto answered = co_await Await(std::move(plans), std::move(poison), pending, keep_alive);
    if (!answered) co_return std::unexpected(answered.error());
  }
  co_return *std::move(pending->answer);
}

Awaitable<api::Result<std::chrono::nanoseconds>> AwaitLoad(Plans plans, std::shared_ptr<PoisonGuard> poison,
                                                           std::shared_ptr<PendingRequest> pending,
                                                           std::optional<KeepAliveClaim> keep_alive) {
  const auto answered = co_await AwaitStream(std::move(plans), std::move(poison), pending, keep_alive);
  if (!answered) co_return std::unexpected(answered.error());
  co_return pending->waited;
}

void End(const Plans& plans, const Jobs& jobs, bool at_once) {
  plans->Close(kShuttingDown);
  jobs->Close(kShuttingDown);
  plans->End(at_once);
  jobs->Stop();
}

Awaitable<void> DrainAll(Plans plans, Jobs jobs, Gate gate, Time deadline) {
  plans->Close(kShuttingDown);
  jobs->Close(kShuttingDown);
  const bool jobs_ended = co_await OneOffJobs::End(jobs, deadline);
  if (!jobs_ended) co_return;
  const bool finished = co_await PlanExecutor::Finish(plans, deadline);
  if (!finished) co_return;
  End(plans, jobs, /*at_once=*/false);
  co_await gate.Empty();
}

}  // namespace

Dispatcher::Dispatcher(const boost::asio::any_io_executor& executor, RunnerProgram runner_program,
                       const Limits& limits)
    : host_(std::make_unique<RunnerHost>(RunnerHost{executor, Gate(executor), std::move(runner_program),
                                                    limits.stop_grace, std::make_shared<FileOpener>(executor),
                                                    limits.snapshots, limits.runner_arguments,
                                                    limits.link_bytes_max})),
      poison_(std::make_shared<PoisonGuard>(executor)),
      plans_(std::make_shared<PlanExecutor>(*host_, limits, poison_)),
      jobs_(std::make_shared<OneOffJobs>(*host_, limits)),
      memory_limit_(limits.memory_limit()) {}

Dispatcher::~Dispatcher() {
  End(plans_, jobs_, /*at_once=*/true);
  host_->opener->Stop();
}

Awaitable<api::Result<std::unique_ptr<TokenStream>>> Dispatcher::Submit(
    ModelSpec spec, api::Request request, std::optional<KeepAliveClaim> keep_alive) {
  const auto pending = std::make_shared<PendingRequest>(host_->executor);
  pending->spec = std::move(spec);
  pending->client = request.client;
  if (request.now_s == 0) request.now_s = std::time(nullptr);
  pending->size = SizeOf(request);
  const RunnerTable& runners = plans_->runners();
  const ModelRunner* runner = runners.Find(pending->spec.key);
  const bool loaded = runner != nullptr && runner->loaded();
  // What cannot fit takes no place in the queue.
  auto misfit = runners.CheckTexts(request, pending->size, loaded ? &runner->info() : nullptr);
  if (misfit) pending->answer = std::unexpected(*std::move(misfit));
  pending->request = std::move(request);
  return AwaitStream(plans_, poison_, pending, keep_alive);
}

Awaitable<api::Result<std::chrono::nanoseconds>> Dispatcher::Load(ModelSpec spec,
                                                                  std::optional<KeepAliveClaim> keep_alive,
                                                                  fair::PartyId party) {
  const auto pending = std::make_shared<PendingRequest>(host_->executor);
  pending->spec = std::move(spec);
  pending->client.party = std::move(party);
  return AwaitLoad(plans_, poison_, pending, keep_alive);
}

void Dispatcher::Unload(const std::string& key) noexcept {
  plans_->scheduler().Unload(key);
  plans_->RequestPlan();
}

void Dispatcher::EndClaim(const std::string& key, const fair::PartyId& party) noexcept {
  plans_->scheduler().EndClaim(key, party, Clock::now());
  plans_->RequestPlan();
}

Awaitable<api::Result<api::ipc::Inspected>> Dispatcher::Inspect(api::ipc::InspectModel request,
                                                                fair::PartyId party) {
  return OneOffJobs::Inspect(jobs_, std::move(request), std::move(party));
}

Awaitable<api::Result<std::unique_ptr<ConversionJob>>> Dispatcher::Convert(api::ipc::ConvertModel request,
                                                                           std::shared_ptr<const void> kept,
                                                                           fair::PartyId party) {
  return OneOffJobs::Convert(jobs_, std::move(request), std::move(kept), std::move(party));
}

Awaitable<void> Dispatcher::Drain(Time deadline) { return DrainAll(plans_, jobs_, host_->gate, deadline); }

// ---- views ----

std::vector<LoadedModel> Dispatcher::Loaded() const {
  return plans_->runners().Loaded(plans_->scheduler().ReadyModels(Clock::now()));
}

std::vector<LoadingModel> Dispatcher::Loading() const { return plans_->runners().Loading(); }

std::optional<api::Error> Dispatcher::RefusalFor(const std::string& key, const fair::PartyId& party) const {
  if (!plans_->scheduler().IsFullFor(key, party)) return std::nullopt;
  return api::Error{api::ErrorCode::kOverloaded, kBusy};
}

Awaitable<void> Dispatcher::InspectEngines(Time until) { return plans_->runners().InspectEngines(until); }

std::vector<EngineView> Dispatcher::Engines() const { return plans_->runners().Engines(); }

Awaitable<api::Result<CacheView>> Dispatcher::InspectCache(const std::string& key,
                                                           api::ipc::InspectCache question, int known_pid) {
  return plans_->runners().InspectCache(key, std::move(question), known_pid);
}

Counters Dispatcher::counters() const {
  Counters counters{.evictions = {}, .restarts = plans_->runners().deaths()};
  for (const auto& [reason, count] : plans_->scheduler().unloads())
    counters.evictions[NameOf(reason)] = count;
  return counters;
}

bool Dispatcher::Stuck(Time now) const { return plans_->runners().Stuck(now); }

std::string Dispatcher::CheckInvariants() const { return plans_->CheckInvariants(); }

}  // namespace quire::scheduler
