// Sends one generation from the scheduler to its client, in any API dialect.
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

// Timing that a reply reports to the client.
struct ReplyTiming {
  std::chrono::system_clock::time_point now;
  std::chrono::nanoseconds total{};  // since the request arrived
  std::chrono::nanoseconds load{};   // of it, waiting for the model to load
};
ReplyTiming ReplyTimingOf(const RequestLog& log, std::chrono::nanoseconds load);

// Encodes one reply in an API dialect.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual bool streams() const = 0;
  virtual std::string_view stream_type() const = 0;
  // Sent as a keep-alive between two chunks of a stream; empty: nothing.
  virtual std::string_view keep_alive() const = 0;
  // Bytes to send now, possibly none. Not streamed: the whole body at Finished.
  virtual std::string OnEvent(const api::Event& event, const ReplyTiming& timing) = 0;
};

struct GenerationJob {
  scheduler::ModelSpec spec;
  api::Request request;
  std::optional<scheduler::KeepAlive> keep_alive;
};

scheduler::ModelSpec SpecOf(const StoredModel& model);

// Answers with an error in the dialect of the request's path, and logs its kind.
Awaitable<void> SendError(Exchange& exchange, const api::Error& error);

// Submits the job and sends its events to the client until the end. The header of a stream leaves with its
// first piece, so that an error before it is a plain answer with its status. Cancellation destroys the
// generation, which ends its work.
Awaitable<void> SendReply(Exchange& exchange, Backend& backend, GenerationJob job, Reply& reply);

}  // namespace quire::server
