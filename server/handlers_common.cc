#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/json_body.h"
#include "server/handlers.h"
#include "server/request_log.h"
#include "server/sha256.h"

namespace quire::server {
namespace {

constexpr size_t kLargeBodyBytes = size_t{128} << 10;
constexpr size_t kLoggedNamesMax = 16;

// "model" of an embedding request whose "input" (or "prompt") is what the endpoints take.
api::Result<std::string> EmbeddingModel(const std::string& body) {
  const auto json = api::ReadBody(body);
  if (!json) return std::unexpected(json.error());
  api::FirstError error;
  api::Fields fields(*json, "", error);
  std::string model = api::GetModel(fields);
  if (const api::Json* input = fields.Find("input")) {
    const bool texts = input->is_array() &&
                       std::ranges::all_of(*input, [](const api::Json& item) { return item.is_string(); });
    if (!input->is_string() && !texts) fields.Reject("input", "must be of type string or array of strings");
  }
  if (error) return std::unexpected(std::move(*error));
  return model;
}

}  // namespace

void AddRoutes(Router& router, Services& services) {
  AddNativeRoutes(router, services);
  AddNativeListRoutes(router, services);
  AddStoreRoutes(router, services);
  AddOpenAiRoutes(router, services);
  AddHealthRoutes(router, services);
}

bool IsLargeBody(const std::string& body) { return body.size() > kLargeBodyBytes; }

std::string TenantOf(const HttpRequest& request) {
  const std::string* credential = request.Find("authorization");
  if (credential == nullptr) credential = request.Find("x-api-key");
  return credential == nullptr || credential->empty() ? std::string() : Sha256Of(*credential);
}

void LogUnknownOptions(const Exchange& exchange, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kLoggedNamesMax); ++i) {
    list += (i > 0 ? "," : "") + LogValue(names[i]);
  }
  spdlog::info("id={} ignored_options={}", exchange.id(), list);
}

Awaitable<void> RefuseEmbedding(Services& services, Exchange& exchange) {
  const auto name = EmbeddingModel(exchange.request().body);
  if (!name) {
    co_await SendError(exchange, name.error());
    co_return;
  }
  exchange.log().model = *name;
  const auto model = co_await services.models.Find(*name);
  const api::Error error = model ? api::Error{api::ErrorCode::kUnsupported,
                                              fmt::format("\"{}\" does not support embeddings", *name)}
                                 : model.error();
  co_await SendError(exchange, error);
}

}  // namespace quire::server
