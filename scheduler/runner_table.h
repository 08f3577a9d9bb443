// The runners of models, how each was used last, and what lists show of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "scheduler/dispatcher.h"
#include "scheduler/model_runner.h"
#include "scheduler/request_table.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler {

// I/O thread only.
class RunnerTable {
 public:
  struct LastUse {
    ModelSpec spec;
    int32_t num_ctx = 0;
  };

  RunnerTable(const Limits& limits, const RequestTable& requests) : limits_(limits), requests_(requests) {}

  // Null: there is none that is not reaped.
  ModelRunner* Find(const std::string& key) const;
  ModelRunner& At(const std::string& key) const { return *runners_.at(key); }
  // The use outlasts the runner until EraseUse().
  LastUse& UseOf(const std::string& key) { return last_use_[key]; }
  const LastUse& KnownUseOf(const std::string& key) const { return last_use_.at(key); }
  void Add(std::shared_ptr<ModelRunner> runner, const ModelSpec& spec);
  void Erase(const std::string& key) { runners_.erase(key); }
  void EraseUse(const std::string& key) { last_use_.erase(key); }
  void CountDeath(const ModelRunner& runner, ExitCause cause);
  void StopAll(const api::Error& why, bool at_once);

  // The context a request gets: what it asks for, else the default, else what the runner's caches hold of one
  // sequence; within what the model was trained for if that is known.
  int32_t EffectiveContext(int32_t asked, const api::ipc::ModelInfo& info) const;
  // Why the texts cannot fit the context; nothing where that is not known. `info`: null while the model is
  // not loaded; then the context is no longer than what the request asks for.
  std::optional<api::Error> CheckTexts(const api::Request& request, const RequestSize& size,
                                       const api::ipc::ModelInfo* info) const;

  // Views, as the Dispatcher's.
  std::vector<LoadedModel> Loaded(const std::vector<Scheduler::Ready>& ready) const;
  std::vector<LoadingModel> Loading() const;
  Awaitable<void> InspectEngines(Time until);
  std::vector<EngineView> Engines() const;
  Awaitable<api::Result<CacheView>> InspectCache(const std::string& key, api::ipc::InspectCache question,
                                                 int known_pid) const;
  const std::map<std::string, uint64_t>& deaths() const { return deaths_; }  // by reason
  bool Stuck(Time now) const;
  std::string CheckInvariants() const;

 private:
  using Runners = std::map<std::string, std::shared_ptr<ModelRunner>>;
  static Awaitable<void> AwaitEngines(Runners runners, Time until);
  static Awaitable<api::Result<CacheView>> AwaitCache(
      int pid, api::Result<std::shared_ptr<RunnerViews::CacheAnswer>> asked);

  const Limits& limits_;
  const RequestTable& requests_;
  Runners runners_;                          // by key, until reaped
  std::map<std::string, LastUse> last_use_;  // by key, of each model that has a runner or will restart
  std::map<std::string, uint64_t> deaths_;
};

}  // namespace quire::scheduler
