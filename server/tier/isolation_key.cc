#include "server/tier/isolation_key.h"

#include <fmt/format.h>

#include "api/base/parse_integer.h"

namespace quire::server {

std::optional<std::string_view> TenantIn(std::string_view isolation) {
  const size_t colon = isolation.find(':');
  const auto length = api::ParseInteger<size_t>(isolation.substr(0, colon));
  if (!length || colon == std::string_view::npos) return std::nullopt;
  const std::string_view rest = isolation.substr(colon + 1);
  if (rest.size() < *length) return std::nullopt;
  return rest.substr(0, *length);
}

std::optional<std::string> WithTenant(std::string_view isolation, std::string_view tenant) {
  const auto before = TenantIn(isolation);
  if (!before) return std::nullopt;
  const std::string_view salt =
      isolation.substr(static_cast<size_t>(before->data() - isolation.data()) + before->size());
  return fmt::format("{}:{}{}", tenant.size(), tenant, salt);
}

}  // namespace quire::server
