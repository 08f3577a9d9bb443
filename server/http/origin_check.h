// Who may talk to a server on this machine through a browser: the Host check against DNS rebinding and the
// Origin rules (CORS). Pure functions over text; any thread.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"

namespace quire::server {

// "Host" without its port; brackets of an IPv6 address are removed. Nothing for a malformed one.
std::optional<std::string> HostWithoutPort(std::string_view host);

class OriginPolicy {
 public:
  // `extra_origins`: patterns as OLLAMA_ORIGINS gives them, '*' matches any run of characters. `machine_name`
  // is the machine's own host name.
  OriginPolicy(const std::vector<std::string>& extra_origins, const std::string& machine_name);

  // May a request with this Host be served over a connection whose own end is `local`? Only a loopback
  // address is guarded: there the name in Host can only have come from rebinding.
  bool AllowsHost(std::string_view host, const boost::asio::ip::address& local) const;

  // May a page of this origin use the server? `host` is the request's Host: the server's own origin is
  // allowed.
  bool AllowsOrigin(std::string_view origin, std::string_view host) const;

 private:
  std::vector<std::string> patterns_;
  std::string machine_name_;
};

// Fields that let the page of an allowed origin read the answer.
std::vector<HeaderField> CorsFields(std::string_view origin);
// Answer to an allowed preflight.
HttpResponse PreflightResponse(std::string_view origin, std::string_view requested_headers = {});

}  // namespace quire::server
