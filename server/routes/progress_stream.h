// The progress of a long request of the Ollama dialect: lines of a stream, or only the last as the
// answer.
#pragma once

#include <string>

#include "api/base/error.h"
#include "server/http/awaitable.h"
#include "server/http/exchange.h"

namespace quire::server {

// I/O thread only; as its Exchange.
class ProgressStream {
 public:
  ProgressStream(Exchange& exchange, bool stream) : exchange_(exchange), stream_(stream) {}

  // One object, without the newline.
  Awaitable<void> Send(std::string body);
  // {"status":"success"}, and the end.
  Awaitable<void> Succeed();
  // An answer with its status while nothing was said, else a line; and the end.
  Awaitable<void> Fail(const api::Error& error);

 private:
  Exchange& exchange_;
  bool stream_;
};

}  // namespace quire::server
