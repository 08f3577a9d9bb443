#include "server/routes/error_response.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "api/anthropic/messages.h"
#include "api/ollama/chat.h"
#include "api/openai/chat.h"

namespace quire::server {
namespace {

api::ErrorCode CodeOf(int status) {
  switch (status) {
    case 403:
      return api::ErrorCode::kForbidden;
    case 404:
      return api::ErrorCode::kNotFound;
    case 413:
      return api::ErrorCode::kTooLarge;
    case 503:
      return api::ErrorCode::kUnavailable;
    default:
      return status < 500 ? api::ErrorCode::kInvalidArgument : api::ErrorCode::kInternal;
  }
}

bool IsAnthropic(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  return path == kMessages || (path.starts_with(kMessages) && path[kMessages.size()] == '/');
}

std::string BodyOf(std::string_view path, const api::Error& error, std::string_view request_id) {
  if (IsAnthropic(path)) return api::anthropic::ErrorBody(error, request_id);
  return path.starts_with("/v1/") ? api::openai::ErrorBody(error) : api::ollama::ErrorBody(error);
}

// Refusals of who asks, not of what is asked: no error of the lower layers stands for them.
std::string AccessErrorBody(std::string_view path, int status, const std::string& message) {
  const bool limit = status == 429;
  nlohmann::ordered_json body;
  if (IsAnthropic(path)) {
    const char* type = limit ? "rate_limit_error" : "authentication_error";
    body = {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
  } else if (path.starts_with("/v1/")) {
    body["error"] = {{"message", message},
                     {"type", limit ? "rate_limit_error" : "invalid_request_error"},
                     {"param", nullptr},
                     {"code", limit ? "rate_limit_exceeded" : "invalid_api_key"}};
  } else {
    body["error"] = message;
  }
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

HttpResponse ErrorResponse(std::string_view path, const api::Error& error, std::string_view request_id) {
  HttpResponse response{.status = api::HttpStatus(error.code)};
  response.body = BodyOf(path, error, request_id);
  if (response.status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

HttpResponse ErrorResponse(std::string_view path, int status, std::string message) {
  if (status == 401 || status == 429)
    return {.status = status, .body = AccessErrorBody(path, status, message)};
  HttpResponse response = ErrorResponse(path, api::Error{CodeOf(status), std::move(message)});
  response.status = status;
  return response;
}

std::string_view Name(api::ErrorCode code) {
  switch (code) {
    case api::ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case api::ErrorCode::kUnsupported:
      return "unsupported";
    case api::ErrorCode::kContextLengthExceeded:
      return "context_length_exceeded";
    case api::ErrorCode::kForbidden:
      return "forbidden";
    case api::ErrorCode::kNotFound:
      return "not_found";
    case api::ErrorCode::kTooLarge:
      return "too_large";
    case api::ErrorCode::kCancelled:
      return "cancelled";
    case api::ErrorCode::kInternal:
      return "internal";
    case api::ErrorCode::kBadModel:
      return "bad_model";
    case api::ErrorCode::kRunnerDied:
      return "runner_died";
    case api::ErrorCode::kOverloaded:
      return "overloaded";
    case api::ErrorCode::kUnavailable:
      return "unavailable";
  }
  return "internal";
}

}  // namespace quire::server
