// Sends the generations of one request from the scheduler to its client, in any API dialect.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "api/base/reply_encoder.h"
#include "api/base/request.h"
#include "scheduler/backend.h"
#include "server/http/awaitable.h"
#include "server/http/exchange.h"
#include "server/store/model_store.h"

namespace quire::server {

class WorkKind;

// The context of an event that happens now.
api::EventContext ContextOf(const RequestLog& log, std::chrono::nanoseconds load, size_t choice = 0);

// What a request asks of a model: its choices, each a generation of its own, and the reply that combines
// them.
struct GenerationJob {
  std::vector<api::Request> choices;  // at least one
  std::unique_ptr<api::ReplyEncoder> reply;
  scheduler::ModelSpec spec = {};
  std::optional<scheduler::KeepAliveClaim> keep_alive = {};
  uint64_t memory_bytes = 0;  // of the choices; 0: nobody has counted them yet
  // Called with the end of each choice before the reply's last bytes are encoded; empty: nobody wants to
  // know.
  std::function<void(const api::Finished& finished)> on_finished = {};

  GenerationJob(api::Request only, std::unique_ptr<api::ReplyEncoder> reply_encoder)
      : reply(std::move(reply_encoder)) {
    choices.push_back(std::move(only));
  }
  GenerationJob(std::vector<api::Request> all, std::unique_ptr<api::ReplyEncoder> reply_encoder)
      : choices(std::move(all)), reply(std::move(reply_encoder)) {}
};

uint64_t MemoryBytes(const std::vector<api::Request>& choices);

scheduler::ModelSpec SpecOf(const SharedModel& model);

// As Exchange has them: an error when there is no room.
std::optional<api::Error> ReserveRequest(Exchange& exchange, uint64_t bytes);
std::optional<api::Error> ReserveAnswer(Exchange& exchange, uint64_t bytes);

// What a client gets of an error's message: its beginning, without the store's paths.
std::string ShownText(Exchange& exchange, const std::string& message);

// Answers with an error in the dialect of the request's path, and logs its kind.
Awaitable<void> SendError(Exchange& exchange, const api::Error& error);

// Submits all choices at once and sends their events as they arrive, each choice's in its order. The header
// of a stream leaves with its first chunk, so that an error before it is a plain answer with its status. The
// first choice that fails ends them all; so does an answer that is collected before it is sent and finds no
// room (Exchange::ReserveAnswer). Cancellation destroys every generation, which ends its work. A large reply,
// or a large chunk of a stream, is encoded on `cpu`, which outlives the call. Of a reply that is sent whole
// only its bytes are kept meanwhile.
Awaitable<void> RelayReply(Exchange& exchange, scheduler::Backend& backend, WorkKind& cpu, GenerationJob job);

}  // namespace quire::server
