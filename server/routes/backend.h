// The scheduler as handlers use it; a seam for tests. Contracts: scheduler/dispatcher.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/dispatcher.h"
#include "server/http/awaitable.h"

namespace quire::server {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Awaitable<api::Result<std::unique_ptr<scheduler::TokenStream>>> Submit(
      scheduler::ModelSpec spec, api::Request request,
      std::optional<scheduler::KeepAliveClaim> keep_alive) = 0;
  virtual Awaitable<api::Result<std::chrono::nanoseconds>> Load(
      scheduler::ModelSpec spec, std::optional<scheduler::KeepAliveClaim> keep_alive, std::string party) = 0;
  virtual void Unload(const std::string& key) = 0;
  virtual void EndClaim(const std::string& key, const std::string& party) = 0;
  virtual Awaitable<api::Result<api::ipc::Inspected>> Inspect(api::ipc::InspectModel request,
                                                              std::string party) = 0;
  virtual Awaitable<api::Result<std::unique_ptr<scheduler::ConversionJob>>> Convert(
      api::ipc::ConvertModel request, std::shared_ptr<const void> kept, std::string party) = 0;
  virtual std::vector<scheduler::LoadedModel> Loaded() const = 0;
  virtual std::vector<scheduler::LoadingModel> Loading() const { return {}; }
  virtual std::optional<api::Error> RefusalFor(const std::string& key, const std::string& party,
                                               scheduler::AnswerLength length) const = 0;
  virtual int64_t MemoryLimit() const { return 0; }  // bytes of all models together; 0 = none
};

class DispatcherBackend : public Backend {
 public:
  explicit DispatcherBackend(scheduler::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  Awaitable<api::Result<std::unique_ptr<scheduler::TokenStream>>> Submit(
      scheduler::ModelSpec spec, api::Request request,
      std::optional<scheduler::KeepAliveClaim> keep_alive) override {
    return dispatcher_.Submit(std::move(spec), std::move(request), keep_alive);
  }
  Awaitable<api::Result<std::chrono::nanoseconds>> Load(scheduler::ModelSpec spec,
                                                        std::optional<scheduler::KeepAliveClaim> keep_alive,
                                                        std::string party) override {
    return dispatcher_.Load(std::move(spec), keep_alive, std::move(party));
  }
  void Unload(const std::string& key) override { dispatcher_.Unload(key); }
  void EndClaim(const std::string& key, const std::string& party) override {
    dispatcher_.EndClaim(key, party);
  }
  Awaitable<api::Result<api::ipc::Inspected>> Inspect(api::ipc::InspectModel request,
                                                      std::string party) override {
    return dispatcher_.Inspect(std::move(request), std::move(party));
  }
  Awaitable<api::Result<std::unique_ptr<scheduler::ConversionJob>>> Convert(api::ipc::ConvertModel request,
                                                                            std::shared_ptr<const void> kept,
                                                                            std::string party) override {
    return dispatcher_.Convert(std::move(request), std::move(kept), std::move(party));
  }
  std::vector<scheduler::LoadedModel> Loaded() const override { return dispatcher_.Loaded(); }
  std::vector<scheduler::LoadingModel> Loading() const override { return dispatcher_.Loading(); }
  std::optional<api::Error> RefusalFor(const std::string& key, const std::string& party,
                                       scheduler::AnswerLength length) const override {
    return dispatcher_.RefusalFor(key, party, length);
  }
  int64_t MemoryLimit() const override { return dispatcher_.memory_limit(); }

 private:
  scheduler::Dispatcher& dispatcher_;
};

}  // namespace quire::server
