#include "server/daemon.h"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "scheduler/dispatcher.h"
#include "server/bundled_models.h"
#include "server/error_response.h"
#include "server/handlers.h"
#include "server/handlers_transfer.h"
#include "server/http_server.h"
#include "server/notify.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr int kBlockingThreads = 2;
// After the drain: for answers that are still being written, then for their coroutines to end.
constexpr std::chrono::seconds kLastWrites(5);
constexpr rlim_t kOpenFilesMax = 65536;

void SetUpLog(int32_t debug) {
  auto logger = std::make_shared<spdlog::logger>("quired", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(debug >= 2   ? spdlog::level::trace
                    : debug == 1 ? spdlog::level::debug
                                 : spdlog::level::info);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

// A connection is a file; the soft limit is often 1024.
void RaiseOpenFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kOpenFilesMax);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

fs::path ExecutableDirectory() {
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  return ec ? fs::path(".") : self.parent_path();
}

api::Result<fs::path> FindRunner(const Options& options) {
  const fs::path here = ExecutableDirectory();
  std::vector<fs::path> places = {here / "quire-runner", here / "../lib/quire/quire-runner",
                                  here / "../libexec/quire/quire-runner"};
  if (!options.runner.empty()) places = {options.runner};
  std::string looked;
  for (const fs::path& place : places) {
    if (::access(place.c_str(), X_OK) == 0) return fs::absolute(place).lexically_normal();
    looked += (looked.empty() ? "" : ", ") + place.lexically_normal().string();
  }
  return api::Fail(
      api::ErrorCode::kUnavailable,
      fmt::format("no runnable quire-runner at {}; say where it is with --runner or QUIRE_RUNNER", looked));
}

const char* SignalName(int signal) { return signal == SIGINT ? "SIGINT" : "SIGTERM"; }

std::string MachineName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Where to listen: sockets handed over by the service manager, else an address to bind.
struct ListenPlan {
  std::vector<int> inherited;
  tcp::endpoint endpoint;
};

// IPv4 first.
api::Result<tcp::endpoint> Resolve(const HostAddress& host) {
  boost::system::error_code ec;
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host.host, std::to_string(host.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("cannot resolve the host \"{}\": {}", host.host, ec.message()));
  }
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  }
  return found.begin()->endpoint();
}

// Only loopback, unless the operator said otherwise.
api::Result<ListenPlan> PlanListen(const Options& options) {
  ListenPlan plan{InheritedSockets(), {}};
  for (const int socket : plan.inherited) {
    const auto bound = ListeningAddress(socket);
    if (!bound) return std::unexpected(bound.error());
    if (!bound->address().is_loopback() && !options.allow_remote) {
      return api::Fail(api::ErrorCode::kForbidden,
                       fmt::format("the inherited socket listens on {}, not a loopback address: set "
                                   "QUIRE_ALLOW_REMOTE=1 to serve other machines all the same",
                                   bound->address().to_string()));
    }
  }
  if (!plan.inherited.empty()) return plan;
  const auto endpoint = Resolve(options.host);
  if (!endpoint) return std::unexpected(endpoint.error());
  plan.endpoint = *endpoint;
  if (!endpoint->address().is_loopback() && !options.allow_remote) {
    return api::Fail(
        api::ErrorCode::kForbidden,
        fmt::format("{} is not a loopback address, and clients are not asked who they are: to serve other "
                    "machines all the same give --allow-remote or set QUIRE_ALLOW_REMOTE=1",
                    options.host.host));
  }
  return plan;
}

TransportLimits LimitsOf(const Options& options) {
  TransportLimits limits;
  limits.parser.body_bytes = options.max_body_bytes;
  limits.buffered_bodies_bytes = std::max(limits.buffered_bodies_bytes, options.max_body_bytes);
  limits.connections = options.max_connections;
  limits.idle_timeout = options.idle_timeout;
  limits.header_timeout = options.header_timeout;
  limits.body_timeout = options.body_timeout;
  limits.write_timeout = options.write_timeout;
  return limits;
}

scheduler::Limits SchedulerLimitsOf(const Options& options) {
  scheduler::Limits limits;
  if (options.max_loaded_models > 0) limits.loaded_models_max = options.max_loaded_models;
  if (options.context_length > 0) limits.default_num_ctx = options.context_length;
  limits.queue_max = options.max_queue;
  limits.threads = options.threads;
  limits.cache_bytes = static_cast<int64_t>(options.cache_bytes);
  limits.reuse_prefixes = options.prefix_cache;
  limits.load_timeout = options.load_timeout;
  limits.default_keep_alive = options.keep_alive;
  return limits;
}

// Member order is lifetime: what is below uses what is above. I/O thread only.
class Daemon {
 public:
  Daemon(const Options& options, const fs::path& runner, ModelStore store)
      : options_(options),
        dispatcher_(io_.get_executor(), runner, SchedulerLimitsOf(options)),
        backend_(dispatcher_),
        models_(std::move(store), pool_),
        inspector_(backend_, io_.get_executor()),
        services_{backend_, models_, inspector_, [this] { return server_->draining(); }},
        transfers_({.trusted = options.registries, .accounts = options.registry_accounts},
                   StoreTransfer(models_.root())),
        signals_(io_, SIGINT, SIGTERM) {
    Transport transport{.limits = LimitsOf(options),
                        .router = {},
                        .origins = OriginPolicy(options.origins, MachineName()),
                        .error_response = [](const HttpRequest& request, int status, std::string message) {
                          return ErrorResponse(request.path, status, std::move(message));
                        }};
    AddRoutes(transport.router, services_);
    AddTransferRoutes(transport.router, transfers_);
    server_ = std::make_unique<HttpServer>(io_.get_executor(), std::move(transport));
  }

  api::Result<void> Listen(const ListenPlan& plan);
  void Run();

 private:
  Awaitable<void> ServeUntilSignal();
  Awaitable<void> EndAtSecondSignal();
  Awaitable<void> FeedWatchdog(std::chrono::microseconds interval);

  Options options_;
  asio::io_context io_{1};
  asio::thread_pool pool_{kBlockingThreads};
  scheduler::Dispatcher dispatcher_;
  DispatcherBackend backend_;
  Models models_;
  Inspector inspector_;
  Services services_;
  registry::Transfers transfers_;
  asio::signal_set signals_;
  std::unique_ptr<HttpServer> server_;
  std::string address_;
};

api::Result<void> Daemon::Listen(const ListenPlan& plan) {
  for (const int socket : plan.inherited) {
    const auto bound = server_->Adopt(socket);
    if (!bound) return std::unexpected(bound.error());
    address_ = Describe(*bound);
  }
  if (!plan.inherited.empty()) return {};
  const auto bound = server_->Listen(plan.endpoint);
  if (!bound) return std::unexpected(bound.error());
  address_ = Describe(*bound);
  return {};
}

void Daemon::Run() {
  asio::co_spawn(io_, ServeUntilSignal(), asio::detached);
  if (const auto interval = WatchdogInterval()) asio::co_spawn(io_, FeedWatchdog(*interval), asio::detached);
  spdlog::info("quired {} listening address={} models={}", QUIRE_VERSION, address_, models_.root().string());
  NotifyReady("Listening on " + address_);
  io_.run();
  pool_.join();
}

Awaitable<void> Daemon::ServeUntilSignal() {
  const auto [ec, signal] = co_await signals_.async_wait(kTuple);
  spdlog::info("draining signal={} connections={}", SignalName(signal), server_->sessions());
  NotifyStopping();
  server_->StopAccepting();
  asio::co_spawn(io_, EndAtSecondSignal(), asio::detached);

  const auto deadline = Clock::now() + options_.drain_timeout;
  co_await dispatcher_.Drain(deadline);
  server_->CloseWaiting();
  const bool ended = co_await server_->WaitForSessions(std::min(deadline, Clock::now() + kLastWrites));
  if (!ended) {
    server_->AbortAll();
    co_await server_->WaitForSessions(Clock::now() + kLastWrites);
  }
  spdlog::info("stopped connections_left={}", server_->sessions());
  io_.stop();
}

// Nothing is waited for: the kernel closes the sockets, and runners die with their parent.
Awaitable<void> Daemon::EndAtSecondSignal() {
  const auto [ec, signal] = co_await signals_.async_wait(kTuple);
  if (ec) co_return;
  spdlog::warn("ending at once signal={}", SignalName(signal));
  spdlog::shutdown();
  std::_Exit(0);
}

Awaitable<void> Daemon::FeedWatchdog(std::chrono::microseconds interval) {
  asio::steady_timer timer(io_);
  for (;;) {
    NotifyAlive();
    timer.expires_after(interval);
    co_await timer.async_wait(kTuple);
  }
}

int Complain(const std::string& message) {
  fmt::print(stderr, "Error: {}\n", message);
  return 1;
}

}  // namespace

int RunDaemon(const Options& options) {
  SetUpLog(options.debug);
  RaiseOpenFileLimit();
  ::signal(SIGPIPE, SIG_IGN);
  const auto runner = FindRunner(options);
  if (!runner) return Complain(runner.error().message);
  const auto plan =
      PlanListen(options);  // before the store is touched: a refused start leaves nothing behind
  if (!plan) return Complain(plan.error().message);
  auto store = ModelStore::Open(options.models);
  if (!store) return Complain(store.error().message);
  if (const auto bundled = FindBundledModels(ExecutableDirectory())) {
    const auto registered = RegisterBundled(*store, *bundled);
    if (!registered) spdlog::warn("cannot add the bundled model: {}", registered.error().message);
  }
  try {
    Daemon daemon(options, *runner, *std::move(store));
    if (const auto listening = daemon.Listen(*plan); !listening) return Complain(listening.error().message);
    daemon.Run();
  } catch (const std::exception& error) {
    return Complain(error.what());
  }
  return 0;
}

int RunDaemon(const OptionTable& table) {
  const auto options = table.Resolve(ProcessEnvironment());
  return options ? RunDaemon(*options) : Complain(options.error().message);
}

}  // namespace quire::server
