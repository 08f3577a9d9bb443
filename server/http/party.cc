#include "server/http/party.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <optional>
#include <string>

#include "server/http/exchange.h"

namespace quire::server {
namespace {

namespace ip = boost::asio::ip;

constexpr size_t kNetworkBytes = 8;  // of an IPv6 address

// "127.0.0.1:80" -> "127.0.0.1", "[::1]:80" -> "::1"
std::string_view HostOf(std::string_view peer) {
  const std::string_view host = peer.substr(0, peer.rfind(':'));
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// Nothing: the peer has none, as a local user. An IPv4 address stays one where IPv6 carries it.
std::optional<ip::address> AddressOf(std::string_view peer) {
  boost::system::error_code error;
  const ip::address address = ip::make_address(std::string(HostOf(peer)), error);
  if (error) return std::nullopt;
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return address;
}

std::string NameOf(std::string_view key, std::string_view peer) {
  if (!key.empty()) return "key:" + std::string(key);
  const auto address = AddressOf(peer);
  if (!address) return std::string(peer);
  if (address->is_v4()) return address->to_string();
  ip::address_v6::bytes_type bytes = address->to_v6().to_bytes();
  std::fill(bytes.begin() + kNetworkBytes, bytes.end(), 0);
  return ip::address_v6(bytes).to_string() + "/64";
}

}  // namespace

fair::PartyId PartyOf(std::string_view key, std::string_view peer, int32_t weight) {
  return fair::PartyNamed(NameOf(key, peer), weight);
}

bool IsOfThisMachine(std::string_view peer) {
  if (peer.starts_with("unix:")) return true;
  const auto address = AddressOf(peer);
  return address && address->is_loopback();
}

const fair::PartyId& PartyOf(const Exchange& exchange) { return exchange.request().party; }

}  // namespace quire::server
