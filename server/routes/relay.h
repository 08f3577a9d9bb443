// Carries one generation from the scheduler to its client, whatever the dialect.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/event.h"
#include "api/base/request.h"
#include "server/http/awaitable.h"
#include "server/http/exchange.h"
#include "server/routes/backend.h"
#include "server/store/model_store.h"

namespace quire::server {

// When an event is told to the client.
struct Moment {
  std::chrono::system_clock::time_point now;
  std::chrono::nanoseconds total{};  // since the request arrived
  std::chrono::nanoseconds load{};   // of it, waiting for the model to load
};
Moment MomentOf(const RequestLog& log, std::chrono::nanoseconds load);

// One reply in a dialect's words.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual bool streams() const = 0;
  virtual std::string_view stream_type() const = 0;
  // What may be sent between two pieces of a silent stream; empty: nothing.
  virtual std::string_view keep_alive() const = 0;
  // Bytes to send now, possibly none. Not streamed: the whole body at Finished.
  virtual std::string OnEvent(const api::Event& event, const Moment& moment) = 0;
};

struct Job {
  scheduler::ModelSpec spec;
  api::Request request;
  std::optional<scheduler::KeepAlive> keep_alive;
};

scheduler::ModelSpec SpecOf(const StoredModel& model);

// Answers with an error in the dialect of the request's path, and logs its kind.
Awaitable<void> SendError(Exchange& exchange, const api::Error& error);

// Submits the job and relays its events until the end. The header of a stream leaves with its first piece, so
// that an error before it is a plain answer with its status. Cancellation destroys the generation, which ends
// its work.
Awaitable<void> Relay(Exchange& exchange, Backend& backend, Job job, Reply& reply);

}  // namespace quire::server
