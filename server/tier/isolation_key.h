// Whose prefixes are, read from their isolation key (api::Client::IsolationKey()). Any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::server {

// The tenant of an isolation key; nothing: it is none.
std::optional<std::string_view> TenantIn(std::string_view isolation);
// An owner's isolation key with another tenant and the same salt; nothing: it is none.
std::optional<std::string> WithTenant(std::string_view isolation, std::string_view tenant);

}  // namespace quire::server
