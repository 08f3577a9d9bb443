// Addresses to listen on and to connect to, as OLLAMA_HOST gives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/base/error.h"

namespace quire::server {

struct HostAddress {
  std::string host;  // name or address, without brackets
  uint16_t port = 11434;
  bool https = false;            // for clients, as is the path; a listener has neither
  std::string path = {};         // behind the first '/', mostly empty
  std::string unix_socket = {};  // of "unix:///PATH", in place of all others
};

// "[scheme://]host[:port][/path]", or "unix:///PATH", as OLLAMA_HOST gives it; empty = 127.0.0.1:11434. http
// means port 80 and https 443 unless a port is said; a port that is none is replaced by the default. ":80" is
// every interface. Errors: a host with characters no host has.
api::Result<HostAddress> ParseHostAddress(std::string_view text);

}  // namespace quire::server
