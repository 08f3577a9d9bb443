// Descriptions of model files, kept by the blobs they depend on. I/O thread only.
//
// A description costs a short-lived process, so one is made at a time for each party, and the
// last few are kept.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "scheduler/backend.h"
#include "scheduler/job_slots.h"
#include "server/http/awaitable.h"
#include "server/store/model_store.h"

namespace quire::server {

class Inspector {
 public:
  using Description = std::shared_ptr<const api::ipc::Inspected>;

  Inspector(scheduler::Backend& backend, const boost::asio::any_io_executor& executor);

  // Failures are not kept: the next call tries again.
  Awaitable<api::Result<Description>> Describe(const StoredModel& model, bool verbose, fair::PartyId party);

  // The model's capabilities, at least "completion", also if it cannot be described. Kept for the weights and
  // templates of 20,000 models; that one cannot be described is kept for a minute, as lists name it again and
  // again.
  Awaitable<std::vector<std::string>> Capabilities(const StoredModel& model, fair::PartyId party);

  // Whether the model has a capability; an error where it cannot be described.
  Awaitable<api::Result<bool>> Can(const StoredModel& model, std::string_view capability,
                                   fair::PartyId party);

  // The context of a request that names none: the model's PARAMETER num_ctx, else the default of its runner,
  // else what it would be after loading. Tokens; 0 = not known. Kept likewise.
  Awaitable<int32_t> DefaultContext(const StoredModel& model, fair::PartyId party);

  // All checks of a load, by its headers alone; not kept, because memory is another each time. What is wrong
  // with the model is in Inspected::error.
  Awaitable<api::Result<api::ipc::Inspected>> CheckLoad(const StoredModel& model, fair::PartyId party);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string key;
    Description description;
  };

  // What a description says in a few words.
  struct Summary {
    std::vector<std::string> capabilities;
    int32_t trained = 0;  // tokens; 0 = not known
    int32_t num_ctx = 0;
    std::optional<Clock::time_point> failed_at = {};  // the file could not be described
  };

  Description Kept(const std::string& key);
  void Remember(const std::string& key, Summary summary);
  Awaitable<Summary> Summarize(const StoredModel& model, fair::PartyId party);

  scheduler::Backend& backend_;
  std::list<Entry> entries_;                            // last used first
  std::unordered_map<std::string, Summary> summaries_;  // by key
  // One of each party: it would wait for the others' in the backend, and they for its turn there.
  std::shared_ptr<scheduler::JobSlots> slots_;
};

}  // namespace quire::server
