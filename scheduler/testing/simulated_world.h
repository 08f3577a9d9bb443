// A world without processes, threads, files or a clock: runners that are simulated (runner_port.h), and a
// time that moves when nothing else can happen. Everything in it follows from one seed.
//
// The program that uses it links these definitions in place of the scheduler's own: Clock, FileOpener,
// RunnerProcess and LogRunnerOutput. All else is the scheduler's code.
#pragma once

#include <sys/types.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "api/base/ids.h"
#include "api/base/request.h"
#include "scheduler/async_event.h"
#include "scheduler/runner_process.h"

namespace quire::scheduler::simulation {

class SimulatedRunner;

// What may go wrong in a run; drawn from the seed.
struct Faults {
  bool deaths = false;         // runners are killed, crash or lose their link
  bool hangs = false;          // they stop, or run in circles
  bool load_failures = false;  // loads fail, die or never end
  bool start_failures = false;
  bool garbage = false;   // they break the protocol
  bool stubborn = false;  // they end on SIGKILL only
};

// One at a time; one thread. Owned by the run.
class World {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;

  World(uint64_t seed, Faults faults);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  static World& Current();

  Time now() const { return now_; }
  // The first error of a check in the world itself; empty if there is none.
  const std::string& broken() const { return broken_; }
  void Break(std::string what);

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  bool OneIn(uint32_t chances) { return Below(chances) == 0; }
  // Mostly short, sometimes long.
  Milliseconds Delay();
  void After(Milliseconds delay, std::function<void()> what);

  const Faults& faults() const { return faults_; }
  void EndFaults() { faults_ = {}; }
  // Something happened to a runner of this model that may fail its requests.
  void CountFault(const std::string& model) { ++faults_of_[model]; }
  uint64_t FaultsOf(const std::string& model) const;
  // Those that a request that comes now is not affected by.
  uint64_t FaultsBefore(const std::string& model) const;
  // A request reaches a runner of this model. False: a younger one did so before, for the first time. Once
  // runners of the model have died its owners take turns: then a younger one of its own owner did.
  bool InOrder(const std::string& model, api::RequestId id, const api::Client& owner);

  // Delivers what the scheduler sent, and does what is due. Moves the time on to that, by at most `step`.
  void Advance(Milliseconds step);
  void ReadLinks();

  // ---- processes ----
  SimulatedRunner& StartRunner(const boost::asio::any_io_executor& executor, const std::string& name,
                               boost::asio::local::stream_protocol::socket& ours);
  SimulatedRunner* Find(pid_t pid);
  void RemoveRunner(pid_t pid);
  const std::map<pid_t, std::unique_ptr<SimulatedRunner>>& runners() const { return runners_; }
  uint64_t runners_started() const { return runners_started_; }

 private:
  void InjectFault();

  struct Event {
    Time at;
    uint64_t order;
    std::function<void()> what;
  };
  static bool Later(const Event& a, const Event& b);

  Time now_;
  std::mt19937_64 random_;
  Faults faults_;
  std::string broken_;
  std::vector<Event> events_;  // a heap
  uint64_t orders_ = 0;
  std::map<std::string, uint64_t> faults_of_;
  std::map<std::string, std::set<api::RequestId>> submitted_;  // by model, and by model and owner
  std::map<pid_t, std::unique_ptr<SimulatedRunner>> runners_;  // until reaped
  uint64_t runners_started_ = 0;
};

}  // namespace quire::scheduler::simulation
