// The requests of clients: those that wait for an answer of the scheduler, and those that run.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "api/base/error.h"
#include "api/base/ids.h"
#include "api/base/request.h"
#include "scheduler/async_event.h"
#include "scheduler/backend.h"
#include "scheduler/model_runner.h"

namespace quire::scheduler {

// In bytes, of a request. Long lists make this slow to know.
struct RequestSize {
  size_t texts = 0;  // api::TextBytes()
  size_t frame = 0;  // about what its frame has
};
RequestSize SizeOf(const api::Request& request);

// A client that waits in Submit or Load.
struct PendingRequest {
  explicit PendingRequest(boost::asio::any_io_executor executor) : answered(std::move(executor)) {}
  void Answer(api::Result<std::unique_ptr<TokenStream>> result);

  api::RequestId id{};
  ModelSpec spec;
  std::optional<api::Request> request;  // absent: a bare load
  RequestSize size;
  api::Client client;
  std::chrono::steady_clock::time_point arrived;
  std::chrono::nanoseconds waited{};
  std::optional<api::Result<std::unique_ptr<TokenStream>>> answer;  // of a bare load: null
  AsyncEvent answered;
};

// A running request: in a runner, or between two.
struct RunningRequest {
  ModelSpec spec;
  api::Request request;
  std::shared_ptr<EventStream> stream;
  RequestSize size;
  // As the client sent them; `request` has the effective values.
  int32_t requested_num_ctx = 0;
  int64_t requested_seed = -1;
  int32_t context = 0;  // tokens; as in api::ipc::Resume
};

// Each is also known to the Scheduler, under the same id. I/O thread only.
struct RequestTable {
  using Pending = std::unordered_map<api::RequestId, std::shared_ptr<PendingRequest>>;
  using Running = std::unordered_map<api::RequestId, RunningRequest>;

  PendingRequest* FindPending(api::RequestId id) const;
  RunningRequest* FindRunning(api::RequestId id);
  // Null: the request is gone.
  const ModelSpec* SpecOf(api::RequestId id);
  // What the model's next runner must hold of one sequence: no request that a runner has started gets another
  // context.
  int32_t ContextNeeded(const std::string& key) const;
  // Ends a pending request with this error; nothing happens if it is not.
  void Refuse(api::RequestId id, const api::Error& error);
  // Empty if every request is in one state.
  std::string CheckInvariants() const;

  Pending pending;
  Running running;
};

}  // namespace quire::scheduler
