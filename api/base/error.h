// The one error type that crosses folders and the runner link.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <utility>

namespace quire::api {

// The kind of an error, for clients and the scheduler. HttpStatus() maps each to a status.
enum class ErrorCode : uint8_t {
  kInvalidArgument,        // 400: a field has a wrong type or value; `field` names it
  kUnsupported,            // 400: well-formed, but this model or version does not do it
  kContextLengthExceeded,  // 400: prompt and context size are in the message
  kForbidden,              // 403
  kNotFound,               // 404: model, blob or route
  kTooLarge,               // 413: request body beyond the limit
  kCancelled,              // 499: the client went away
  kInternal,               // 500
  kBadModel,    // 500: a model file is broken, truncated or of an unknown kind; message names file and reason
  kRunnerDied,  // 500: the runner died while it worked on this request
  kOverloaded,  // 503: queue full
  kUnavailable,  // 503: draining, or no runner can be started
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string field = {};  // JSON path of the offending request field ("options.temperature"), or empty
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> Fail(ErrorCode code, std::string message, std::string field = {}) {
  return std::unexpected<Error>(Error{code, std::move(message), std::move(field)});
}

// HTTP status code for an error; total over ErrorCode.
int HttpStatus(ErrorCode code);

}  // namespace quire::api
