#include "api/base/error.h"

#include <algorithm>
#include <array>
#include <utility>

namespace quire::api {
namespace {

struct Row {
  ErrorCode code;
  int status;
  std::string_view name;
};

// In the order of ErrorCode. CodeOf() takes the first row of a status.
constexpr std::array kRows = {
    Row{ErrorCode::kInvalidArgument, 400, "invalid_argument"},
    Row{ErrorCode::kUnsupported, 400, "unsupported"},
    Row{ErrorCode::kContextLengthExceeded, 400, "context_length_exceeded"},
    Row{ErrorCode::kForbidden, 403, "forbidden"},
    Row{ErrorCode::kNotFound, 404, "not_found"},
    Row{ErrorCode::kTooLarge, 413, "too_large"},
    Row{ErrorCode::kCancelled, 499, "cancelled"},
    Row{ErrorCode::kInternal, 500, "internal"},
    Row{ErrorCode::kBadModel, 500, "bad_model"},
    Row{ErrorCode::kRunnerDied, 500, "runner_died"},
    Row{ErrorCode::kOverloaded, 503, "overloaded"},
    Row{ErrorCode::kUnavailable, 503, "unavailable"},
    Row{ErrorCode::kUnauthorized, 401, "unauthorized"},
    Row{ErrorCode::kRateLimited, 429, "rate_limited"},
};

constexpr bool IsTotal() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (std::to_underlying(kRows[i].code) != i) return false;
  }
  return kRows.back().code == ErrorCode::kRateLimited;
}
static_assert(IsTotal());

}  // namespace

int HttpStatus(ErrorCode code) { return kRows[std::to_underlying(code)].status; }

ErrorCode CodeOf(int status) {
  const auto* row = std::ranges::find(kRows, status, &Row::status);
  if (row != kRows.end()) return row->code;
  return status >= 400 && status < 500 ? ErrorCode::kInvalidArgument : ErrorCode::kInternal;
}

std::string_view Name(ErrorCode code) { return kRows[std::to_underlying(code)].name; }

}  // namespace quire::api
