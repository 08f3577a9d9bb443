#include "server/daemon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "api/base/io_thread.h"
#include "scheduler/dispatcher.h"
#include "server/console/console.h"
#include "server/drain.h"
#include "server/exit_deadline.h"
#include "server/http/awaitable.h"
#include "server/http/key_file.h"
#include "server/http/server.h"
#include "server/io_context.h"
#include "server/journal.h"
#include "server/limits_of_options.h"
#include "server/listen_plan.h"
#include "server/memory_budget.h"
#include "server/memory_release.h"
#include "server/notify.h"
#include "server/program_files.h"
#include "server/reloadable.h"
#include "server/routes/blocking.h"
#include "server/routes/error_response.h"
#include "server/routes/handlers.h"
#include "server/routes/metrics.h"
#include "server/routes/metrics_route.h"
#include "server/routes/node_route.h"
#include "server/routes/prefill_estimates.h"
#include "server/routes/private_paths.h"
#include "server/routes/transfer.h"
#include "server/routes/vector_cache.h"
#include "server/snapshots_of_options.h"
#include "server/store/bundled_models.h"
#include "server/store_cleanup.h"
#include "server/tier/named_prefix.h"
#include "server/tier/prefix_routes.h"
#include "server/tier/snapshot_figures.h"
#include "server/tier/snapshot_service.h"
#include "server/trace_exporter.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// For requests that waited for work on the pools when the drain ended.
constexpr std::chrono::seconds kLastResults(1);
// For all that is left when the I/O thread has stopped.
constexpr std::chrono::seconds kLastWork(5);
constexpr std::chrono::seconds kMemoryLook(2);  // between two looks for memory to give back

std::string MachineName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Member order is lifetime: what is below uses what is above. I/O thread only.
class Daemon {
 public:
  Daemon(const Options& options, std::function<api::Result<Options>()> resolve,
         const scheduler::RunnerProgram& runner)
      : options_(options),
        resolve_(std::move(resolve)),
        memory_(BudgetOf(options.memory_bytes, api::FindMemoryLimit())),
        metrics_(options.vllm_metrics),
        traces_(options.otlp_endpoint.empty()
                    ? nullptr
                    : std::make_unique<TraceExporter>(options.otlp_endpoint, MachineName())),
        snapshots_(SnapshotsOf(options, runner.open_path(), memory_.reserve_bytes)),
        dispatcher_(io_.get_executor(), runner, SchedulerLimitsOf(options, memory_, snapshots_)),
        models_(ModelStore::At(options.models), pools_),
        inspector_(dispatcher_, io_.get_executor()),
        services_{dispatcher_,
                  models_,
                  inspector_,
                  pools_,
                  [this] { return server_->draining(); },
                  [this](api::ModelName name, fair::PartyId party, ProgressStream& progress) {
                    return FetchModel(services_, transfers_, std::move(name), std::move(party), progress);
                  }},
        transfers_({.trusted = options.registries,
                    .accounts = options.registry_accounts,
                    .hubs = registry::ReadHubSettings()},
                   StoreTransfer(models_.store())),
        hangups_(io_) {
    Transport transport{
        .limits = TransportLimitsOf(options, memory_.reserve_bytes),
        .router = {},
        .origins = OriginPolicy(options.origins, MachineName()),
        .error_response =
            [](const HttpRequest& request, int status, std::string message, std::string_view id) {
              return ErrorResponse(request.path, status, std::move(message), id);
            },
        .on_request =
            [this](const RequestLog& log) {
              WriteRequest(log);
              metrics_.Observe(log, Clock::now());
              recent_.Add(log, Clock::now());
              prefill_.Observe(log);
              if (traces_) traces_->Observe(log);
            },
        .client_text = [paths = PrivatePaths(models_.root(), {runner.path().parent_path()})](
                           std::string_view message) { return paths.Hide(message); },
        .compute = [this](auto& party, auto& step) { return RunStep(pools_.steps, step, party); }};
    services_.vectors = &vectors_;
    if (snapshots_)
      services_.slot_files = SlotFilesOf([this] { return snapshots_->ready(); }, snapshots_->tier());
    AddRoutes(transport.router, services_);
    AddTransferRoutes(transport.router, services_, transfers_);
    AddMetricsRoutes(transport.router, metrics_, [this] { return MomentOfDaemon(); });
    AddNodeRoutes(transport.router, models_, [this] { return MomentOfDaemon(); });
    AddConsoleRoutes(transport.router);
    AddNowRoutes(transport.router, now_);
    AddCacheRoutes(transport.router, cache_);
    AddKeyRoutes(transport.router, keys_);
    AddPrefixRoutes(transport.router, prefixes_);
    transport.access.Replace(options.keys);
    server_ = std::make_unique<HttpServer>(io_.get_executor(), std::move(transport));
    drain_ =
        std::make_unique<Drain>(io_, *server_, dispatcher_, options_.drain_timeout, [this] { StopWork(); });
  }

  const std::vector<Route>& routes() const { return server_->routes(); }

  // Errors: an address that cannot be listened on, a certificate that cannot be used, or a model store. The
  // store comes last: a start that is refused before leaves none behind. Clients wait until Run().
  api::Result<void> Start(const ListenPlan& plan);
  void Run() noexcept;  // what a handler throws ends the process

 private:
  api::Result<void> PrepareStore();
  Awaitable<void> ServeUntilSignal();
  void StopWork();
  void EndWaiting();
  Awaitable<void> FinishWaiting();
  Awaitable<void> FeedWatchdog(std::chrono::microseconds interval);
  Awaitable<void> ReleaseMemory();
  Awaitable<void> ReloadAtHangup();
  Awaitable<api::Result<void>> Reload();
  MetricsSnapshot MomentOfDaemon() const;
  Awaitable<api::Result<scheduler::ModelSpec>> FindSpec(std::string name, fair::PartyId party);
  Awaitable<api::Result<std::string>> CreateKey(KeyRequest request, fair::PartyId party);
  Awaitable<api::Result<void>> RemoveKey(std::string name, fair::PartyId party);
  void ChangeKeys(KeyRing keys);

  ExitDeadline exit_deadline_;  // outlasts all others
  Options options_;
  std::function<api::Result<Options>()> resolve_;  // reloads all settings
  MemoryBudget memory_;
  bool remote_ = false;     // other machines can reach it
  bool activated_ = false;  // the service manager holds the sockets
  Metrics metrics_;
  PrefillEstimates prefill_;
  std::unique_ptr<TraceExporter> traces_;  // null: nobody collects them
  WorkPools pools_;
  IoContext io_;
  std::shared_ptr<SnapshotService> snapshots_;  // null: none
  scheduler::Dispatcher dispatcher_;
  AsyncModelStore models_;
  Inspector inspector_;
  VectorCache vectors_;
  Services services_;
  RecentRequests recent_;
  NowSources now_{
      .visit_requests =
          [this](const std::function<void(const RequestLog&)>& visit) { server_->ForEachRequest(visit); },
      .loaded_models = [this] { return dispatcher_.Loaded(); },
      .loading_models = [this] { return dispatcher_.Loading(); },
      .inspect_engines = [this](Clock::time_point until) { return dispatcher_.InspectEngines(until); },
      .engines = [this] { return dispatcher_.Engines(); },
      .memory_budget_bytes = [this] { return memory_.bytes; },
      .draining = [this] { return server_->draining(); },
      .recent = recent_};
  CacheSources cache_{
      .find_model = [this](auto name, auto party) { return FindSpec(std::move(name), std::move(party)); },
      .inspect = [this](
                     const std::string& key, api::ipc::InspectCache question,
                     int known_pid) { return dispatcher_.InspectCache(key, std::move(question), known_pid); },
      .draining = [this] { return server_->draining(); }};
  KeySources keys_{
      .uses = [this] { return server_->KeyUses(); },
      .create = [this](auto request, auto party) { return CreateKey(std::move(request), std::move(party)); },
      .remove = [this](auto name, auto party) { return RemoveKey(std::move(name), std::move(party)); }};
  PrefixSources prefixes_{.open = [this]() -> api::Result<SnapshotService::Opened> {
                            if (snapshots_) return snapshots_->opened();
                            return api::Fail(api::ErrorCode::kNotFound,
                                             "prefixes are not kept on disk: QUIRE_SNAPSHOT_BYTES is 0");
                          },
                          .pools = &pools_};
  registry::Transfers transfers_;
  asio::signal_set hangups_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Drain> drain_;
  std::string address_, restricted_;  // `restricted_`: ListenPlan::warning
};

api::Result<void> Daemon::Start(const ListenPlan& plan) {
  if (!options_.tls_cert.empty() && !options_.tls_key.empty()) {
    auto tls = TlsContext::Load(options_.tls_cert, options_.tls_key);
    if (!tls) return std::unexpected(tls.error());
    server_->SetTls(*std::move(tls));
  }
  const auto addresses = Listen(*server_, plan);
  if (!addresses) return std::unexpected(addresses.error());
  address_ = fmt::format("{}", fmt::join(*addresses, ","));
  remote_ = plan.remote;
  restricted_ = plan.warning;
  activated_ = !plan.inherited.empty();
  return PrepareStore();
}

api::Result<void> Daemon::PrepareStore() {
  ModelStore store = models_.store();
  if (auto prepared = store.Prepare(); !prepared) return prepared;
  if (const auto bundled = FindBundledModels(ExecutableDirectory())) {
    const auto registered = RegisterBundled(store, *bundled);
    if (!registered) spdlog::warn("cannot add the bundled model: {}", registered.error().message);
  }
  return {};
}

void Daemon::Run() noexcept {
  if (snapshots_) snapshots_->Begin();
  asio::co_spawn(io_, ServeUntilSignal(), kEndsProcess);
  asio::co_spawn(io_, ReloadAtHangup(), kEndsProcess);
  asio::co_spawn(io_, ReleaseMemory(), kEndsProcess);
  asio::co_spawn(io_, CleanStore(StoreTransfer(models_.store()), pools_), kEndsProcess);
  if (const auto interval = WatchdogInterval()) asio::co_spawn(io_, FeedWatchdog(*interval), kEndsProcess);
  spdlog::info("quired {} listening address={} models={} keys={}", QUIRE_VERSION, address_,
               models_.root().string(), options_.keys.size());
  spdlog::info("model memory budget memory_bytes={} reserve_bytes={} source=\"{}\"", memory_.bytes,
               memory_.reserve_bytes, memory_.from);
  for (const std::string& warning : options_.warnings) spdlog::warn("{}", warning);
  if (!restricted_.empty()) spdlog::warn("{}", restricted_);
  if (remote_ && options_.keys.empty()) spdlog::warn("remote clients are allowed without authentication");
  NotifyReady("Listening on " + address_ +
              (restricted_.empty() ? "" : " only, without API keys; see the log"));
  {
    const api::IoThreadMark io_thread;
    io_.run();
  }
  drain_->ExitAtSignals();
  exit_deadline_.Start(kLastWork);
  StopWork();
  pools_.executor.Join();
  EndWaiting();
  if (snapshots_) EndSnapshots(*snapshots_);
}

// Nobody waits for its results any more.
void Daemon::StopWork() {
  pools_.executor.Stop();
  transfers_.CancelAll();
}

// A request may still wait for work that took longer than the drain. Its coroutine refers to the store and
// the dispatcher: it ends, or is destroyed, before they do.
void Daemon::EndWaiting() {
  io_.restart();
  asio::co_spawn(io_, FinishWaiting(), kEndsProcess);
  io_.run();
  pools_.executor.DropWaiting();
  io_.DestroyWaiting();
}

Awaitable<void> Daemon::FinishWaiting() {
  co_await server_->WaitForSessions(Clock::now() + kLastResults);
  io_.stop();
}

Awaitable<api::Result<scheduler::ModelSpec>> Daemon::FindSpec(std::string name, fair::PartyId party) {
  auto model = co_await models_.Find(std::move(name), std::move(party));
  if (!model) co_return std::unexpected(std::move(model).error());
  co_return SpecOf(*model);
}

// A reload has named another file of keys while one was changed: what the old one holds counts no more.
api::Error OtherKeys() {
  return {api::ErrorCode::kUnavailable, "the settings were reloaded with another file of keys; try again"};
}

// Keys are added where there are some: a first one would lock out everybody who works without.
Awaitable<api::Result<std::string>> Daemon::CreateKey(KeyRequest request, fair::PartyId party) {
  if (options_.keys.empty()) {
    co_return api::Fail(api::ErrorCode::kForbidden,
                        "the server runs without API keys; make the first with \"quire key\" and restart");
  }
  const fs::path path = options_.keys_file;
  auto work = [path, request] { return AddKey(path, request.name, request.role, request.limits); };
  auto added = co_await RunBlocking(pools_.settings, std::move(work), party);
  if (!added) co_return std::unexpected(std::move(added).error());
  if (path != options_.keys_file) co_return std::unexpected(OtherKeys());
  spdlog::info("key added name={} keys={}", request.name, added->keys.size());
  ChangeKeys(std::move(added->keys));
  co_return std::move(added->secret);
}

Awaitable<api::Result<void>> Daemon::RemoveKey(std::string name, fair::PartyId party) {
  if (options_.keys.empty())
    co_return api::Fail(api::ErrorCode::kNotFound, "the server runs without API keys");
  const fs::path path = options_.keys_file;
  auto work = [path, name] { return server::RemoveKey(path, name); };
  auto left = co_await RunBlocking(pools_.settings, std::move(work), party);
  if (!left) co_return std::unexpected(std::move(left).error());
  if (path != options_.keys_file) co_return std::unexpected(OtherKeys());
  spdlog::info("key removed name={} keys={}", name, left->size());
  ChangeKeys(*std::move(left));
  co_return api::Result<void>();
}

void Daemon::ChangeKeys(KeyRing keys) {
  options_.keys = keys;
  server_->SetKeys(std::move(keys));
}

MetricsSnapshot Daemon::MomentOfDaemon() const {
  MetricsSnapshot snapshot = SnapshotOf(*server_, prefill_, Clock::now());
  for (const scheduler::LoadedModel& model : dispatcher_.Loaded()) {
    snapshot.runners.push_back({.model = model.spec.name,
                                .pid = model.runner_pid,
                                .predicted_bytes = model.memory_bytes,
                                .threads = options_.runner_settings.threads,
                                .load_time = model.load_time,
                                .since_progress = model.since_progress,
                                .cache_bytes = model.info.cache_bytes,
                                .heartbeat = model.heartbeat});
    snapshot.prefill[model.spec.name].bytes_per_second = prefill_.BytesPerSecond(model.spec.name);
  }
  if (snapshots_) AddSnapshotFigures(*snapshots_, snapshot);
  const scheduler::Counters counters = dispatcher_.counters();
  snapshot.evictions = counters.evictions;
  snapshot.restarts = counters.restarts;
  snapshot.memory_budget_bytes = memory_.bytes;
  snapshot.log_lines_dropped = DroppedLogLines();
  const VectorCache::Stats vectors = vectors_.stats();
  snapshot.vector_cache_hits = vectors.hits;
  snapshot.vector_cache_misses = vectors.misses;
  snapshot.vector_cache_bytes = vectors.bytes;
  if (traces_) snapshot.traces = {.sent = traces_->stats().sent, .dropped = traces_->stats().dropped};
  return snapshot;
}

// Reloads all settings and applies those that need no restart. Nothing changes unless all are valid. They are
// read where keys are added, one after the other: what was read first is never applied last.
Awaitable<api::Result<void>> Daemon::Reload() {
  auto work = [resolve = resolve_] { return ReadReloadable(resolve); };
  auto settings = co_await RunBlocking(pools_.settings, std::move(work));
  if (!settings) co_return std::unexpected(std::move(settings).error());
  Options& options = settings->options;
  if (options.keys.empty() && !options_.keys.empty()) {
    co_return api::Fail(api::ErrorCode::kForbidden,
                        "reload would leave no API keys; restart to disable authentication");
  }
  for (const std::string& name : NeedRestart(options_, options)) {
    spdlog::warn("setting changed, restart required: {}", name);
  }
  if (settings->tls) server_->SetTls(*std::move(settings->tls));
  server_->SetKeys(options.keys);
  server_->SetOrigins(OriginPolicy(options.origins, MachineName()));
  server_->SetLimits(TransportLimitsOf(options, memory_.reserve_bytes));
  SetLogLevel(options.debug);
  options_ = std::move(options);
  co_return api::Result<void>();
}

Awaitable<void> Daemon::ReloadAtHangup() {
  // The end of the terminal that it was started from ends a daemon, as it ends any program.
  if (::isatty(STDERR_FILENO) != 0) co_return;
  hangups_.add(SIGHUP);
  for (;;) {
    const auto [ec, signal] = co_await hangups_.async_wait(kTuple);
    if (ec) co_return;
    NotifyReloading();
    const auto reloaded = co_await Reload();
    if (reloaded) {
      spdlog::info("reloaded keys={}", options_.keys.size());
    } else {
      spdlog::error("reload failed, configuration unchanged: {}", reloaded.error().message);
    }
    if (!server_->draining())
      NotifyReady((reloaded ? "Listening on " : "Last reload failed; listening on ") + address_);
  }
}

Awaitable<void> Daemon::ServeUntilSignal() {
  co_await drain_->AtSignal(activated_);
  io_.stop();
}

Awaitable<void> Daemon::ReleaseMemory() {
  asio::steady_timer timer(io_);
  for (MemoryRelease memory;;) {
    timer.expires_after(kMemoryLook);
    co_await timer.async_wait(kTuple);
    memory.ReleaseIfWorthwhile();
  }
}

Awaitable<void> Daemon::FeedWatchdog(std::chrono::microseconds interval) {
  asio::steady_timer timer(io_);
  for (;;) {
    // This loop serves the clients: when it stands still, nothing is said either.
    if (!dispatcher_.Stuck(Clock::now())) NotifyAlive();
    timer.expires_after(interval);
    co_await timer.async_wait(kTuple);
  }
}

int PrintError(const std::string& message) {
  DrainLog();  // lines before it stay before it
  fmt::print(stderr, "Error: {}\n", message);
  return 1;
}

}  // namespace

std::vector<Route> DaemonRoutes() {
  const Daemon daemon(Options{}, /*resolve=*/{}, /*runner=*/std::string());
  std::vector<Route> routes = daemon.routes();
  for (Route& route : routes) route.handler = {};
  return routes;
}

int RunDaemon(const OptionTable& table) {
  const auto resolve = [&table] { return table.Resolve(ProcessEnvironment()); };
  const auto options = resolve();
  if (!options) return PrintError(options.error().message);
  SetUpLog(options->debug);
  ::signal(SIGPIPE, SIG_IGN);
  const auto runner = FindRunner(*options);
  if (!runner) return PrintError(runner.error().message);
  const auto plan = PlanListen(*options);
  if (!plan) return PrintError(plan.error().message);
  try {
    Daemon daemon(*options, resolve, *runner);
    if (const auto started = daemon.Start(*plan); !started) return PrintError(started.error().message);
    daemon.Run();
    DrainLog();
  } catch (const std::exception& error) {
    return PrintError(error.what());
  }
  return 0;
}

}  // namespace quire::server
