// One request and its answer, as a handler sees them. I/O thread only.
//
// A handler answers with exactly one Send(), or with Stream() any number of times and one EndStream(). Every
// call waits until the bytes are with the kernel, so a slow reader holds its handler, and only its handler,
// up. Once the client is gone the calls return false and, on cancel-on-disconnect routes, the handler is
// canceled: what it awaits throws operation_aborted and its locals end whatever they stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/awaitable.h"
#include "server/http/message.h"
#include "server/http/parser.h"
#include "server/http/request_log.h"

namespace quire::server {

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual RequestLog& log() = 0;
  virtual const std::string& id() const = 0;  // the answer's X-Request-Id

  // The next piece of the body, on a route that reads its own (Route::streamed_body_bytes); empty at its end.
  // Nothing: it cannot be had, and the handler returns without an answer, which is given for it.
  virtual Awaitable<std::optional<std::string>> ReadBody() = 0;

  // Frees the body, which the handler needs no more.
  virtual void DropBody() = 0;
  virtual uint64_t body_bytes() const = 0;  // of the body, also of one that was freed

  virtual Awaitable<bool> Send(HttpResponse response) = 0;
  // One piece of a stream, sent at once. The first call sends the header too. `bytes` may be empty: header
  // only.
  virtual Awaitable<bool> Stream(std::string_view content_type, std::string bytes) = 0;
  virtual Awaitable<bool> EndStream() = 0;
  // The request's work is done, and what it has of its key's limits is free before its last bytes leave: a
  // client may send its next request as soon as it has read them. Before the last piece of a stream; Send()
  // does it alone.
  virtual void EndWork() = 0;
  // From now on, whenever the stream was silent for a while, send these bytes between two pieces (an SSE
  // comment). Starts the stream if nothing was sent by then; without bytes that is all it does.
  virtual void KeepAlive(std::string_view content_type, std::string_view bytes) = 0;

  // Asks for room for `bytes` of memory that the body became when it was parsed; it has this room until the
  // request ends. What a freed body had counts for it. Why there is none: 413 for one request, 429 for those
  // of its party, 503 for all. Any thread on which the handler has work done.
  virtual std::optional<ParseFailure> ReserveRequest(uint64_t bytes) = 0;
  // Gives back the room beyond `bytes`, which a freed body became.
  virtual void ShrinkRequest(uint64_t bytes) = 0;
  // Asks for room for `bytes` of an answer that is collected before it is sent; it has this room until the
  // request ends. Why there is none: 413 for one answer, 429 for those of its party, 503 for all.
  virtual std::optional<ParseFailure> ReserveAnswer(uint64_t bytes) = 0;

  // An error's message without what is not for clients, such as the server's own paths. If that is less than
  // all of it, the log gets the whole message.
  virtual std::string ClientText(const std::string& message) = 0;

  // Something of the answer has left: its status can no longer change.
  virtual bool started() const = 0;
};

}  // namespace quire::server
