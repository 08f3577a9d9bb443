#include "server/routes/error_response.h"

#include <utility>

#include "api/anthropic/messages.h"
#include "api/ollama/chat.h"
#include "api/openai/chat.h"

namespace quire::server {
namespace {

bool IsAnthropic(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  return path == kMessages || (path.starts_with(kMessages) && path[kMessages.size()] == '/');
}

std::string ErrorBodyOf(std::string_view path, const api::Error& error, std::string_view request_id) {
  if (IsAnthropic(path)) return api::anthropic::ErrorBody(error, request_id);
  return path.starts_with("/v1/") ? api::openai::ErrorBody(error) : api::ollama::ErrorBody(error);
}

}  // namespace

HttpResponse ErrorResponse(std::string_view path, const api::Error& error, std::string_view request_id) {
  HttpResponse response{.status = api::HttpStatus(error.code)};
  response.body = ErrorBodyOf(path, error, request_id);
  if (response.status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

HttpResponse ErrorResponse(std::string_view path, int status, std::string message,
                           std::string_view request_id) {
  HttpResponse response =
      ErrorResponse(path, api::Error{api::CodeOf(status), std::move(message)}, request_id);
  response.status = status;
  return response;
}

}  // namespace quire::server
