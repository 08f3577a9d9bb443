#include "server/registry/proxy.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "api/base/ascii.h"

namespace quire::server::registry {
namespace {

struct AddressesFreed {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, AddressesFreed>;

// Null: unknown.
Addresses AddressesOf(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  return Addresses(::getaddrinfo(host.c_str(), nullptr, &hints, &list) == 0 ? list : nullptr);
}

bool IsThisMachine(const Origin& origin) {
  return origin.host == "localhost" || origin.host == "::1" || origin.host.starts_with("127.");
}

// Whether an entry of NO_PROXY names the host.
bool Names(std::string_view entry, const Origin& origin) {
  if (entry == "*") return true;
  const size_t colon = entry.rfind(':');
  if (colon != std::string_view::npos && entry.find(':') == colon) {
    if (entry.substr(colon + 1) != std::to_string(origin.port)) return false;
    entry = entry.substr(0, colon);
  }
  if (entry.starts_with("*.")) entry.remove_prefix(1);
  if (entry.starts_with('.')) entry.remove_prefix(1);
  if (entry.empty() || !origin.host.ends_with(entry)) return false;
  const size_t before = origin.host.size() - entry.size();
  return before == 0 || origin.host[before - 1] == '.';
}

bool IsExempt(const Origin& origin, std::string_view list) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (Names(api::AsciiLower(api::Trimmed(list.substr(0, end))), origin)) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

std::string_view ValueOf(const Environment& environment, const char* lower, const char* upper) {
  for (const char* name : {lower, upper}) {
    if (const char* value = environment(name); value != nullptr && *value != '\0') return value;
  }
  return {};
}

}  // namespace

std::optional<std::string> ProxyFor(const Origin& origin, const Environment& environment) {
  if (IsThisMachine(origin) || IsExempt(origin, ValueOf(environment, "no_proxy", "NO_PROXY")))
    return std::nullopt;
  std::string_view proxy = origin.scheme == "https" ? ValueOf(environment, "https_proxy", "HTTPS_PROXY")
                                                    : ValueOf(environment, "http_proxy", "HTTP_PROXY");
  if (proxy.empty()) proxy = ValueOf(environment, "all_proxy", "ALL_PROXY");
  return proxy.empty() ? std::nullopt : std::optional<std::string>(proxy);
}

bool MayBeReachedByProxy(const std::string& host) {
  const Addresses list = AddressesOf(host, 0);
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    if (!IsPublic(*each->ai_addr)) return false;
  }
  return true;
}

}  // namespace quire::server::registry
