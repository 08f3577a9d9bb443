#include "server/http/access.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "api/base/ascii.h"

namespace quire::server {

namespace {

std::unexpected<AccessControl::Refusal> Refuse(int status, std::string message,
                                               std::chrono::seconds retry_after = std::chrono::seconds(0)) {
  return std::unexpected<AccessControl::Refusal>({status, std::move(message), retry_after});
}

RateState RateOf(int32_t per_minute, double allowance) {
  const double seconds = (per_minute - allowance) * 60.0 / per_minute;
  return {per_minute, static_cast<int32_t>(allowance),
          std::chrono::seconds(static_cast<int64_t>(std::ceil(seconds)))};
}

// "Bearer KEY", in any case.
std::string_view BearerOf(std::string_view field) {
  constexpr std::string_view kScheme = "bearer ";
  if (api::AsciiLower(field.substr(0, kScheme.size())) != kScheme) return {};
  field.remove_prefix(kScheme.size());
  return field.substr(std::min(field.find_first_not_of(' '), field.size()));
}

}  // namespace

void AccessControl::Replace(KeyRing keys) {
  keys_ = std::move(keys);
  const auto gone = [this](const auto& record) { return !keys_.Names(record.first); };
  std::erase_if(records_, gone);
  std::erase_if(uses_, [&](const auto& use) { return gone(use) && use.second.running.held() == 0; });
}

const ApiKey* AccessControl::KeyOf(const HttpRequest& request) const {
  if (const std::string* field = request.Find("authorization")) {
    if (const ApiKey* key = keys_.Find(BearerOf(*field))) return key;
  }
  const std::string* field = request.Find("x-api-key");
  return field != nullptr ? keys_.Find(*field) : nullptr;
}

std::expected<AccessControl::Admitted, AccessControl::Refusal> AccessControl::Admit(
    const HttpRequest& request, Access needed, bool counted, Time now) {
  if (needed == Access::kOpen || keys_.empty())
    return Admitted{.name = {}, .admin = keys_.empty(), .permit = {}};
  const ApiKey* key = KeyOf(request);
  if (key == nullptr)
    return Refuse(401, "a valid API key is required (Authorization: Bearer KEY, or x-api-key: KEY)");
  if (needed == Access::kAdmin && key->role != Role::kAdmin) {
    return Refuse(403, "this endpoint requires an API key with the admin role");
  }
  auto admitted = AdmitKey(*key, counted, now);
  if (admitted) {
    Record& record = records_[key->name];
    ++record.requests;
    record.last = now;
  }
  return admitted;
}

std::vector<AccessControl::KeyUse> AccessControl::Uses() const {
  std::vector<KeyUse> uses;
  uses.reserve(keys_.size());
  for (const ApiKey& key : keys_.keys()) {
    KeyUse& use = uses.emplace_back(KeyUse{.name = key.name, .role = key.role, .limits = key.limits});
    const auto record = records_.find(key.name);
    if (record == records_.end()) continue;
    use.requests = record->second.requests;
    use.last = record->second.last;
  }
  return uses;
}

std::expected<AccessControl::Admitted, AccessControl::Refusal> AccessControl::AdmitKey(const ApiKey& key,
                                                                                       bool counted,
                                                                                       Time now) {
  const bool admin = key.role == Role::kAdmin;
  const KeyLimits& limits = key.limits;
  if (!counted || (limits.parallel == 0 && limits.per_minute == 0))
    return Admitted{.name = key.name, .admin = admin, .weight = limits.weight, .permit = {}};

  Use& use = uses_[key.name];
  use.running.SetLimits({.total = limits.parallel > 0 ? static_cast<uint64_t>(limits.parallel) : UINT64_MAX});
  fair::Quota::Lease permit(use.running, {});
  if (permit.GrowTo(1)) {
    return Refuse(429, "this API key has reached its limit of concurrent requests", std::chrono::seconds(1));
  }
  if (limits.per_minute > 0) {
    const double rate = limits.per_minute / 60.0;  // a second
    const double limit = limits.per_minute;
    const double passed = use.refilled ? std::chrono::duration<double>(now - *use.refilled).count() : 60.0;
    use.allowance = std::min(limit, use.allowance + passed * rate);
    use.refilled = now;
    if (use.allowance < 1) {
      const auto wait = static_cast<int64_t>(std::ceil((1 - use.allowance) / rate));
      auto refusal = Refuse(429, "this API key has reached its limit of requests per minute",
                            std::chrono::seconds(wait));
      refusal.error().rate = RateOf(limits.per_minute, use.allowance);
      return refusal;
    }
    use.allowance -= 1;
  }
  Admitted admitted{.name = key.name, .admin = admin, .weight = limits.weight, .permit = std::move(permit)};
  if (limits.per_minute > 0) admitted.rate = RateOf(limits.per_minute, use.allowance);
  return admitted;
}

}  // namespace quire::server
