// A runner of a simulation, seen from its end of the link. Its answers follow from the request alone, so that
// a client can tell whether a token is lost, doubled or another's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/ipc/messages.h"
#include "scheduler/async_event.h"
#include "scheduler/runner_process.h"
#include "scheduler/testing/runner_port.h"
#include "scheduler/testing/simulated_world.h"

namespace quire::scheduler::simulation {

// The prompt's text: which answer it gets.
struct Script {
  uint32_t number = 0;  // of the request
  int32_t tokens = 0;
  int32_t deadly_at = -1;  // kills its runner before this token; -1: never

  std::string Text() const;
  static std::optional<Script> Read(std::string_view text);
};

api::TokenId TokenOf(uint32_t number, int64_t index);

// Memory that a model needs, by its name.
api::ipc::MemoryEstimate EstimateOf(const std::string& model);

// Owned by the World, from its start until it is reaped.
class SimulatedRunner {
 public:
  // `daemon` becomes the daemon's end of its link.
  SimulatedRunner(World& world, const boost::asio::any_io_executor& executor, pid_t pid, std::string model,
                  boost::asio::local::stream_protocol::socket& daemon);

  pid_t pid() const { return pid_; }
  const std::string& model() const { return model_; }
  bool alive() const { return !exit_.has_value(); }
  const std::optional<ExitStatus>& exit() const { return exit_; }
  AsyncEvent& exited() { return exited_; }
  int64_t memory_bytes() const { return memory_bytes_; }  // granted

  void Signal(int signal);
  void ReadLink();
  // The process ends. Its last frames, its status and the end of its link come in any order.
  void Die(ExitStatus status);
  void CloseLink() { port_.Close(); }
  void Stop() { stopped_ = true; }          // as SIGSTOP does
  void RunInCircles() { circles_ = true; }  // heartbeats without progress
  void SendGarbage() { port_.SendGarbage(); }
  // Something happens to it that may fail its requests, now or later.
  void CountFault();
  bool doomed() const { return doomed_; }

 private:
  struct Answer {
    Script script;
    int64_t next = 0;
    int32_t credit = 0;
  };

  void Begin();
  void SendHeartbeat();
  void Later(std::function<void()> what);
  void Send(api::ipc::ToDaemon message);
  void On(const api::ipc::ToRunner& message);
  void OnSubmit(const api::ipc::Submit& submit);
  void Start(api::RequestId id);
  bool LoadGoesWrong();
  void Continue(api::RequestId id);
  void CheckResume(const api::ipc::Submit& submit, const Script& script);

  World& world_;
  const pid_t pid_;
  const std::string model_;
  const std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // for events that outlive this
  RunnerPort port_;
  std::map<api::RequestId, Answer> answers_;
  std::set<api::RequestId> seen_;
  AsyncEvent exited_;
  std::optional<ExitStatus> exit_;
  bool dying_ = false;
  bool doomed_ = false;
  bool stopped_ = false;
  bool circles_ = false;
  bool loaded_ = false;
  bool stubborn_ = false;
  uint64_t progress_ = 0;
  int64_t memory_bytes_ = 0;
};

}  // namespace quire::scheduler::simulation
