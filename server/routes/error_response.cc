#include "server/routes/error_response.h"

#include <algorithm>
#include <array>
#include <utility>

#include "api/anthropic/messages.h"
#include "api/ollama/chat.h"
#include "api/openai/chat.h"
#include "api/openai/cohere_embed.h"

namespace quire::server {
namespace {

bool IsAnthropic(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  return path == kMessages || (path.starts_with(kMessages) && path[kMessages.size()] == '/');
}

// OpenAI's paths, those without /v1 of llama.cpp's server, and its own that came with them.
bool IsOpenAi(std::string_view path) {
  static constexpr auto kPaths = std::to_array<std::string_view>(
      {"/completion", "/completions", "/infill", "/chat/completions", "/responses", "/models", "/embedding",
       "/embeddings", "/rerank", "/reranking", "/score"});
  return path.starts_with("/v1/") || path.starts_with("/slots/") ||
         std::ranges::find(kPaths, path) != kPaths.end();
}

bool IsCohere(std::string_view path) { return path.starts_with("/v2/") || path == "/v1/embed"; }

std::string ErrorBodyOf(std::string_view path, const api::Error& error, std::string_view request_id) {
  switch (ErrorDialectOf(path)) {
    case ErrorDialect::kAnthropic:
      return api::anthropic::ErrorBody(error, request_id);
    case ErrorDialect::kCohere:
      return api::CohereErrorBody(error);
    case ErrorDialect::kOpenAi:
      return api::openai::ErrorBody(error);
    case ErrorDialect::kOllama:
      break;
  }
  return api::ollama::ErrorBody(error);
}

}  // namespace

ErrorDialect ErrorDialectOf(std::string_view path) {
  if (IsAnthropic(path)) return ErrorDialect::kAnthropic;
  if (IsCohere(path)) return ErrorDialect::kCohere;
  return IsOpenAi(path) ? ErrorDialect::kOpenAi : ErrorDialect::kOllama;
}

HttpResponse ErrorResponse(std::string_view path, const api::Error& error, std::string_view request_id) {
  HttpResponse response{.status = api::HttpStatus(error.code)};
  response.body = ErrorBodyOf(path, error, request_id);
  if (response.status == 503 || response.status == 429) response.headers.push_back({"Retry-After", "1"});
  return response;
}

HttpResponse ErrorResponse(std::string_view path, int status, std::string message,
                           std::string_view request_id) {
  HttpResponse response{.status = status};
  response.body = ErrorBodyOf(path, api::Error{api::CodeOf(status), std::move(message)}, request_id);
  if (status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

}  // namespace quire::server
