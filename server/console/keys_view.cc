#include "server/console/keys_view.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "api/json/fields.h"
#include "api/json/read.h"
#include "api/json/type.h"

namespace quire::server {
namespace {

constexpr int32_t kLimitMax = 1'000'000;  // as in a key file

const char* NameOfRole(Role role) { return role == Role::kAdmin ? "admin" : "inference"; }

void RejectUnread(api::Fields& fields) {
  fields.VisitUnread([&](std::string_view name) {
    fields.Reject(name, "is unknown");
    return false;
  });
}

}  // namespace

api::Result<KeyRequest> ParseKeyRequest(std::string_view body) {
  const auto json = api::ReadJson(body);
  if (!json) return std::unexpected(json.error());
  api::FirstError error;
  api::Fields fields(*json, "", error);
  KeyRequest request;
  if (!fields.Get("name", request.name)) fields.Reject("name", "is required");
  std::string role = "inference";
  fields.Get("role", role);
  if (role != "inference" && role != "admin") fields.Reject("role", "must be inference or admin");
  request.role = role == "admin" ? Role::kAdmin : Role::kInference;
  fields.Get("weight", request.limits.weight, 1, kLimitMax);
  fields.Get("parallel", request.limits.parallel, 0, kLimitMax);
  fields.Get("per_minute", request.limits.per_minute, 0, kLimitMax);
  RejectUnread(fields);
  if (error) return std::unexpected(*std::move(error));
  return request;
}

api::Result<std::string> ParseKeyName(std::string_view body) {
  const auto json = api::ReadJson(body);
  if (!json) return std::unexpected(json.error());
  api::FirstError error;
  api::Fields fields(*json, "", error);
  std::string name;
  if (!fields.Get("name", name)) fields.Reject("name", "is required");
  RejectUnread(fields);
  if (error) return std::unexpected(*std::move(error));
  return name;
}

std::string EncodeKeys(const std::vector<AccessControl::KeyUse>& uses, std::string_view own,
                       std::chrono::steady_clock::time_point now) {
  using api::Json;
  Json keys = Json::array();
  for (const AccessControl::KeyUse& use : uses) {
    Json& key = keys.emplace_back(Json{{"name", use.name},
                                       {"role", NameOfRole(use.role)},
                                       {"weight", use.limits.weight},
                                       {"parallel", use.limits.parallel},
                                       {"per_minute", use.limits.per_minute},
                                       {"requests", use.requests}});
    if (use.name == own) key["own"] = true;
    if (use.last) key["idle_ms"] = duration_cast<std::chrono::milliseconds>(now - *use.last).count();
  }
  return Json{{"required", !uses.empty()}, {"keys", std::move(keys)}}.dump();
}

}  // namespace quire::server
