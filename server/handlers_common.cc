#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/handlers.h"
#include "server/request_log.h"
#include "server/sha256.h"

namespace quire::server {
namespace {

constexpr size_t kLargeBodyBytes = size_t{128} << 10;
constexpr size_t kLoggedNamesMax = 16;

}  // namespace

void AddRoutes(Router& router, Services& services) {
  AddNativeRoutes(router, services);
  AddNativeListRoutes(router, services);
  AddStoreRoutes(router, services);
  AddOpenAiRoutes(router, services);
  AddEmbeddingRoutes(router, services);
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

}  // namespace quire::server
