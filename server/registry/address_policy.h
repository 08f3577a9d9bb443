// Where the daemon may connect to for a registry. A client names the registry, and a registry names where it
// redirects to: none of them may make the daemon reach into the network that it stands in.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::server::registry {

// Not loopback, private, link-local, shared, multicast, reserved, nor an IPv6 form that stands for such an
// IPv4 address.
bool IsPublic(const sockaddr& address);

struct Origin {
  std::string scheme;  // "https" or "http"
  std::string host;    // lower case, without brackets
  uint16_t port = 0;

  bool operator==(const Origin&) const = default;
};

// kInvalidArgument if it is not an http(s) URL, or contains a user.
api::Result<Origin> OriginOf(const std::string& url);
// `reference` as seen from `base`.
api::Result<std::string> Resolve(const std::string& base, const std::string& reference);

// Registries that the operator trusts, "host" or "host:port": they may have any address, and speak HTTP.
class AddressPolicy {
 public:
  explicit AddressPolicy(std::vector<std::string> trusted);

  bool Trusts(const Origin& origin) const;
  // kForbidden: HTTP, and not trusted. Addresses are looked at when they are connected to.
  api::Result<void> Check(const Origin& origin) const;

 private:
  std::vector<std::string> trusted_;  // lower case
};

}  // namespace quire::server::registry
