// The dispatcher's inside: it carries out Placement's plans with ModelRunners and answers those who wait.
//
// Plans are made from a posted handler only, never from inside an event: events change Placement and ask for
// a plan.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "scheduler/conversion.h"
#include "scheduler/dispatcher.h"
#include "scheduler/gate.h"
#include "scheduler/generation.h"
#include "scheduler/inspection.h"
#include "scheduler/model_runner.h"
#include "scheduler/placement.h"
#include "scheduler/refusals.h"
#include "scheduler/signal.h"

namespace quire::scheduler {

// I/O thread only. Coroutines of clients and of runners share it; the Dispatcher's destructor closes it.
class Dispatcher::Impl : public ModelRunner::Owner,
                         public RequestCarrier,
                         public std::enable_shared_from_this<Impl> {
 public:
  using Self = std::shared_ptr<Impl>;

  Impl(const boost::asio::any_io_executor& executor, std::filesystem::path runner_binary, Limits limits);

  static Awaitable<api::Result<std::unique_ptr<Generation>>> Submit(Self self, ModelSpec spec,
                                                                    api::Request request,
                                                                    std::optional<KeepAlive> keep_alive);
  static Awaitable<api::Result<std::chrono::nanoseconds>> Load(Self self, ModelSpec spec,
                                                               std::optional<KeepAlive> keep_alive);
  static Awaitable<api::Result<api::ipc::Inspected>> Inspect(Self self, api::ipc::InspectModel request);
  static Awaitable<api::Result<std::unique_ptr<Converting>>> Convert(Self self,
                                                                     api::ipc::ConvertModel request,
                                                                     std::shared_ptr<const void> kept);
  static Awaitable<void> Drain(Self self, std::chrono::steady_clock::time_point deadline);

  void Unload(const std::string& key);
  std::vector<LoadedModel> Loaded() const;
  Counters counters() const;
  bool Stuck() const;
  std::optional<api::Error> Refusal() const;
  // Refuses everything from now on, fails what waits or runs, and ends every runner.
  void End(bool at_once);

 private:
  // Someone who waits in Submit or Load. Also known to placement_, under the same id, until answered.
  struct Pending {
    explicit Pending(boost::asio::any_io_executor executor) : answered(std::move(executor)) {}
    api::RequestId id{};
    ModelSpec spec;
    std::optional<api::Request> request;  // absent: a bare load
    std::chrono::steady_clock::time_point arrived;
    std::chrono::nanoseconds waited{};
    std::optional<api::Result<std::unique_ptr<Generation>>> answer;  // of a bare load: null
    Signal answered;
  };
  // A request with an answer under way: in a runner, or between two. Also known to placement_, under the same
  // id.
  struct Running {
    ModelSpec spec;
    api::Request request;
    std::shared_ptr<EventStream> stream;
    // Of the request as the client sent it; in `request` is what was chosen.
    int32_t asked_num_ctx = 0;
    int64_t asked_seed = -1;
  };
  class Attendance;
  class OneShotPlace;
  class OwnedConversion;
  // The runners that do one thing and end, of one kind; at most `running_max` at once.
  struct OneShots {
    OneShots(boost::asio::any_io_executor executor, size_t most)
        : running_max(most), changed(std::move(executor)) {}
    size_t running_max;
    std::unordered_set<std::shared_ptr<RunnerSession>> running = {};
    int32_t waiting = 0;
    Signal changed;
  };
  // Waits until one more may start.
  static Awaitable<api::Result<void>> AwaitPlace(Self self, OneShots& shots);

  // Puts it into the queue and waits until it has an answer. kCancelled: the awaiting coroutine was
  // cancelled.
  static Awaitable<api::Result<void>> Await(Self self, std::shared_ptr<Pending> pending,
                                            std::optional<KeepAlive> keep_alive);

  void OnMeasured(ModelRunner& runner, Placement::Need need) override;
  void OnLoaded(ModelRunner& runner) override;
  void OnEnding(ModelRunner& runner, Placement::Ending ending, const api::Error& why) override;
  void OnGone(ModelRunner& runner) override;
  void OnRequestStarted(api::RequestId id) override;
  void OnRequestProgress(api::RequestId id) override;
  void OnRequestEnded(api::RequestId id) override;
  void OnClientLeft(api::RequestId id) override;
  void OnDeltasTaken(api::RequestId id, int32_t deltas) override;

  void AskForPlan();
  void CarryOutPlan();
  void StartRunner(const Placement::Load& load);
  void Admit(api::RequestId id);
  api::Result<std::unique_ptr<Generation>> SubmitTo(ModelRunner& runner, Pending& pending);
  void Resume(api::RequestId id, Running& running);
  void Expire(api::RequestId id);
  void EndRunning(api::RequestId id);
  void FailWith(api::RequestId id, Placement::Ending ending, const api::Error& why);
  void Answer(Pending& pending, api::Result<std::unique_ptr<Generation>> answer);
  void AnswerIfPending(api::RequestId id, const api::Error& error);
  api::Error TooLarge(int64_t bytes) const;
  void ArmTimer(std::optional<Placement::Time> wake_at);
  bool Busy() const {
    return placement_.requests() > 0 || !inspections_.running.empty() || !conversions_.running.empty();
  }

  const boost::asio::any_io_executor executor_;
  const Limits limits_;
  RunnerHost host_;
  Placement placement_;
  std::map<std::string, std::shared_ptr<ModelRunner>> runners_;  // by key, until reaped
  struct LastUse {
    ModelSpec spec;
    int32_t num_ctx = 0;
  };
  std::map<std::string, LastUse> last_use_;  // by key, of models that are loaded or come back by themselves
  std::unordered_map<api::RequestId, std::shared_ptr<Pending>> pending_;
  std::unordered_map<api::RequestId, Running> running_;
  Refusals refusals_;
  OneShots inspections_;
  OneShots conversions_;
  Signal requests_changed_;  // notified with every plan, for Drain
  boost::asio::steady_timer plan_timer_;
  std::map<std::string, uint64_t> restarts_;  // by reason
  uint64_t ids_ = 0;
  bool plan_asked_ = false;
  bool closed_ = false;  // draining or ended: nothing new
  bool ended_ = false;   // no more plans by timer
};

}  // namespace quire::scheduler
