// The one error type that crosses folders and the runner link.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace quire::api {

// What went wrong, as far as a client or the scheduler acts on it. The table in error.cc gives the HTTP
// status and the name of each. The last two concern who asks: they stay in the server and never cross the
// runner link.
enum class ErrorCode : uint8_t {
  kInvalidArgument,        // a field has a wrong type or value; `field` names it
  kUnsupported,            // well-formed, but this model or version does not do it
  kContextLengthExceeded,  // prompt and context size are in the message
  kForbidden,
  kNotFound,   // model, blob or route
  kTooLarge,   // request body beyond the limit
  kCancelled,  // the client went away
  kInternal,
  kBadModel,      // a model file is broken, truncated or of an unknown kind; message names file and reason
  kRunnerDied,    // the runner died while it worked on this request
  kOverloaded,    // queue full
  kUnavailable,   // draining, or no runner can be started
  kUnauthorized,  // no API key, or a wrong one
  kRateLimited,   // the API key is at one of its limits
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string field = {};  // JSON path of the offending request field ("options.temperature"), or empty
  // kContextLengthExceeded: tokens of the prompt (at least), and of the context; 0: not known.
  int64_t tokens = 0;
  int64_t tokens_max = 0;
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> Fail(ErrorCode code, std::string message, std::string field = {}) {
  return std::unexpected<Error>(Error{code, std::move(message), std::move(field)});
}

// HTTP status of an error; total over ErrorCode.
int HttpStatus(ErrorCode code);
// The error that an HTTP status stands for. Any other 4xx is kInvalidArgument, anything else kInternal.
ErrorCode CodeOf(int status);

// "invalid_argument", "runner_died"; for logs.
std::string_view Name(ErrorCode code);

}  // namespace quire::api
