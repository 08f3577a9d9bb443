#include "server/host_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "api/base/ascii.h"
#include "api/base/parse_integer.h"
#include "server/option_values.h"

namespace quire::server {
namespace {

bool IsHostCharacter(char c) {
  return api::IsAsciiAlnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
}

}  // namespace

api::Result<HostAddress> ParseHostAddress(std::string_view text) {
  text = TrimmedValue(text);
  HostAddress address{"127.0.0.1"};
  if (const size_t mark = text.find("://"); mark != std::string_view::npos) {
    const std::string scheme = api::AsciiLower(text.substr(0, mark));
    if (scheme == "unix") {
      address.unix_socket = text.substr(mark + 3);
      if (address.unix_socket.starts_with('/')) return address;
      return api::Fail(api::ErrorCode::kInvalidArgument,
                       fmt::format("\"{}\" has no absolute path of a Unix socket", text));
    }
    if (scheme == "http") address.port = 80;
    address.https = scheme == "https";
    if (address.https) address.port = 443;
    text.remove_prefix(mark + 3);
  }
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    address.path = text.substr(slash + 1);
    text = text.substr(0, slash);
  }
  if (text.empty()) return address;

  // An IPv6 address has more than one colon; only in brackets can a port follow it.
  std::string_view host = text;
  std::optional<std::string_view> port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) {
      return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a host address", text));
    }
    host = text.substr(1, close - 1);
    if (text.substr(close + 1).starts_with(':')) port = text.substr(close + 2);
  } else if (std::ranges::count(text, ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(host.size() + 1);
  }
  if (!std::ranges::all_of(host, IsHostCharacter)) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a host address", text));
  }
  address.host = host.empty() ? "0.0.0.0" : std::string(host);
  if (port) address.port = api::ParseInteger<uint16_t>(*port).value_or(address.port);
  return address;
}

}  // namespace quire::server
