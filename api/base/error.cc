#include "api/base/error.h"

namespace quire::api {

int HttpStatus(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kContextLengthExceeded:
      return 400;
    case ErrorCode::kForbidden:
      return 403;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kTooLarge:
      return 413;
    case ErrorCode::kCancelled:
      return 499;
    case ErrorCode::kInternal:
    case ErrorCode::kBadModel:
    case ErrorCode::kRunnerDied:
      return 500;
    case ErrorCode::kOverloaded:
    case ErrorCode::kUnavailable:
      return 503;
  }
  return 500;
}

}  // namespace quire::api
