// The proxy that the environment names for an address: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in
// either case.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/registry/address_policy.h"

namespace quire::server::registry {

using Environment = std::function<const char*(const char* name)>;

// A URL ("http://user:password@proxy:3128"), or nothing: the address is reached directly, as those of this
// machine always are. NO_PROXY is a list of names, of addresses, and of "*"; a name stands for its subdomains
// too.
std::optional<std::string> ProxyFor(const Origin& origin, const Environment& environment);

// Whether a proxy may be asked for a connection to this host: not for an address that is not public, nor a
// name that has one here. A name that is unknown here is the proxy's to judge.
bool MayBeReachedByProxy(const std::string& host);

}  // namespace quire::server::registry
