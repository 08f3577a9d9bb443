// A scheduler that plays a script, for tests of handlers. I/O thread only, except where said.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "scheduler/backend.h"
#include "server/http/awaitable.h"

namespace quire::server::testing {

struct Block {};  // wait until the test releases it or the client disconnects
using Step = std::variant<api::Event, Block>;

// State that a test sets before a request and reads after the reply.
struct Script {
  std::vector<Step> events;
  bool block_submit = false;  // stay in the queue, or in the load
  std::optional<api::Error> submit_error;
  std::optional<size_t> out_of_memory;  // the request, from 0, whose first event is std::bad_alloc
  std::set<size_t> displaced;           // the requests, from 0, that fail with kOverloaded and this text
  std::string displaced_text = scheduler::kBusy;
  std::optional<api::Error> refusal;
  api::ipc::Inspected inspected;
  std::optional<api::Error> load_error;  // of a check whether a model loads

  std::optional<std::string> converted;  // the file that a conversion writes; nothing: there are none
  std::vector<scheduler::LoadedModel> loaded;
  std::vector<scheduler::LoadingModel> loading;
};

struct Seen {
  std::vector<scheduler::ModelSpec> submitted;
  std::vector<api::Request> requests;
  std::vector<std::optional<scheduler::KeepAlive>> keep_alives;  // of submits and loads
  std::vector<bool> by_admin;                                    // of these: KeepAliveClaim::by_admin
  int loads = 0;
  std::vector<std::string> unloaded;
  std::vector<std::string> claims_ended;  // of models, by their keys
  std::vector<bool> inspections;          // verbose?
  std::vector<api::ipc::InspectModel> load_checks;

  void Add(const std::optional<scheduler::KeepAliveClaim>& claim) {
    keep_alives.push_back(claim ? std::optional(claim->keep_alive) : std::nullopt);
    by_admin.push_back(claim && claim->by_admin);
  }
};

class FakeBackend : public scheduler::Backend {
 public:
  explicit FakeBackend(const boost::asio::any_io_executor& executor);

  Awaitable<api::Result<std::unique_ptr<scheduler::TokenStream>>> Submit(
      scheduler::ModelSpec spec, api::Request request,
      std::optional<scheduler::KeepAliveClaim> keep_alive) override;
  Awaitable<api::Result<std::chrono::nanoseconds>> Load(scheduler::ModelSpec spec,
                                                        std::optional<scheduler::KeepAliveClaim> keep_alive,
                                                        fair::PartyId party) override;
  void Unload(const std::string& key) override { seen.unloaded.push_back(key); }
  void EndClaim(const std::string& key, const fair::PartyId&) override { seen.claims_ended.push_back(key); }
  Awaitable<api::Result<api::ipc::Inspected>> Inspect(api::ipc::InspectModel request,
                                                      fair::PartyId party) override;
  Awaitable<api::Result<std::unique_ptr<scheduler::ConversionJob>>> Convert(api::ipc::ConvertModel request,
                                                                            std::shared_ptr<const void> kept,
                                                                            fair::PartyId party) override;
  std::vector<scheduler::LoadedModel> Loaded() const override { return script.loaded; }
  std::vector<scheduler::LoadingModel> Loading() const override { return script.loading; }
  std::optional<api::Error> RefusalFor(const std::string&, const fair::PartyId&) const override {
    return script.refusal;
  }

  // Ends every Block, also those reached later.
  void Release() { blocked_.expires_at(std::chrono::steady_clock::time_point::min()); }

  Script script;
  Seen seen;
  // Set when a Block is reached, and when a blocked request is destroyed because its client disconnected. Any
  // thread waits.
  std::promise<void> blocked;
  std::promise<void> abandoned;

 private:
  class FakeTokenStream;
  class Presence;
  Awaitable<void> WaitReleased();

  boost::asio::any_io_executor executor_;
  boost::asio::steady_timer blocked_;
};

}  // namespace quire::server::testing
