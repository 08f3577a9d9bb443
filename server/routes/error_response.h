// Errors as HTTP answers, in the shape of the dialect that a path belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "server/http/message.h"

namespace quire::server {

enum class ErrorDialect : uint8_t { kOllama, kOpenAi, kAnthropic, kCohere };
ErrorDialect ErrorDialectOf(std::string_view path);

// {"error":"..."}; for "/v1/messages..." Anthropic's object with the request's id (unless that is empty), for
// the rest of "/v1/..." and the same paths without it OpenAI's. 429 and 503 ask the client to come back.
HttpResponse ErrorResponse(std::string_view path, const api::Error& error, std::string_view request_id = {});
// An error of the transport that has a status of its own (401, 405, 408, 429, 431). That of 429 knows when to
// come back.
HttpResponse ErrorResponse(std::string_view path, int status, std::string message,
                           std::string_view request_id = {});

}  // namespace quire::server
