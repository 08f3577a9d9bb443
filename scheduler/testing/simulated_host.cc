// What the scheduler takes from its host, in a simulation: time, files, processes.
#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "scheduler/clock.h"
#include "scheduler/file_opener.h"
#include "scheduler/runner_output.h"
#include "scheduler/runner_process.h"
#include "scheduler/testing/simulated_runner.h"
#include "scheduler/testing/simulated_world.h"

namespace quire::scheduler {

using boost::asio::awaitable;
using simulation::SimulatedRunner;
using simulation::World;

Clock::time_point Clock::now() { return World::Current().now(); }

// ---- files ----

FileOpener::FileOpener(boost::asio::any_io_executor executor) : executor_(std::move(executor)), threads_(1) {}

void FileOpener::Open(std::vector<std::filesystem::path> models, Deliver deliver) {
  World& world = World::Current();
  world.After(world.Delay(),
              [models = std::move(models), deliver = std::move(deliver)] { deliver(Files(models.size())); });
}

void FileOpener::Stop() {}

// ---- output ----

awaitable<void> LogRunnerOutput(boost::asio::posix::stream_descriptor /*pipe*/, std::string /*model*/,
                                int /*pid*/) {
  co_return;
}

// ---- processes ----

std::string ExitStatus::ToString() const { return fmt::format("simulated end {}", value); }

RunnerProcess::RunnerProcess(const boost::asio::any_io_executor& executor, pid_t pid, int /*pidfd*/,
                             boost::asio::local::stream_protocol::socket socket,
                             boost::asio::posix::stream_descriptor output)
    : pid_(pid), pidfd_(executor), socket_(std::move(socket)), output_(std::move(output)) {}

awaitable<api::Result<std::unique_ptr<RunnerProcess>>> RunnerProcess::Start(
    boost::asio::any_io_executor executor, RunnerProgram /*program*/, std::string name,
    std::vector<api::FileDescriptor> /*files*/, std::vector<std::string> /*more_arguments*/) {
  World& world = World::Current();
  Timer timer(executor, world.now() + world.Delay());
  co_await timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  if (world.faults().start_failures && world.OneIn(6)) {
    world.CountFault(name);
    co_return api::Fail(api::ErrorCode::kUnavailable, "a simulated failure to start");
  }
  boost::asio::local::stream_protocol::socket socket(executor);
  const SimulatedRunner& runner = world.StartRunner(executor, name, socket);
  co_return std::unique_ptr<RunnerProcess>(new RunnerProcess(
      executor, runner.pid(), -1, std::move(socket), boost::asio::posix::stream_descriptor(executor)));
}

RunnerProcess::~RunnerProcess() { World::Current().RemoveRunner(pid_); }

void RunnerProcess::Send(int signal) {
  if (SimulatedRunner* runner = World::Current().Find(pid_)) runner->Signal(signal);
}

awaitable<std::optional<ExitStatus>> RunnerProcess::Wait() {
  SimulatedRunner& runner = *World::Current().Find(pid_);
  while (!runner.exit()) {
    const bool waited = co_await runner.exited().Wait();
    if (!waited) co_return std::nullopt;
  }
  exit_ = runner.exit();
  co_return exit_;
}

}  // namespace quire::scheduler
