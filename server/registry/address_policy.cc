#include "server/registry/address_policy.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "api/base/ascii.h"
#include "api/base/parse_integer.h"

namespace quire::server::registry {
namespace {

struct Block {
  uint32_t network;
  int bits;
};

constexpr uint32_t Ip(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

constexpr auto kNotPublic = std::to_array<Block>({{Ip(0, 0, 0, 0), 8},
                                                  {Ip(10, 0, 0, 0), 8},
                                                  {Ip(100, 64, 0, 0), 10},
                                                  {Ip(127, 0, 0, 0), 8},
                                                  {Ip(169, 254, 0, 0), 16},
                                                  {Ip(172, 16, 0, 0), 12},
                                                  {Ip(192, 0, 0, 0), 24},
                                                  {Ip(192, 0, 2, 0), 24},
                                                  {Ip(192, 168, 0, 0), 16},
                                                  {Ip(198, 18, 0, 0), 15},
                                                  {Ip(198, 51, 100, 0), 24},
                                                  {Ip(203, 0, 113, 0), 24},
                                                  {Ip(224, 0, 0, 0), 4},
                                                  {Ip(240, 0, 0, 0), 4}});

bool IsPublicV4(uint32_t address) {
  return std::ranges::none_of(kNotPublic, [address](const Block& block) {
    return (address ^ block.network) >> (32 - block.bits) == 0;
  });
}

// In IPv6 only what is handed out to the public (2000::/3), without the forms that carry an IPv4 address
// (6to4, Teredo) and documentation.
bool IsPublicV6(const std::array<uint8_t, 16>& bytes) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) {
    return IsPublicV4(Ip(bytes[12], bytes[13], bytes[14], bytes[15]));
  }
  const bool global = (bytes[0] & 0xE0) == 0x20;
  const bool six_to_four = bytes[0] == 0x20 && bytes[1] == 0x02;
  const bool special = bytes[0] == 0x20 && bytes[1] == 0x01 && (bytes[2] & 0xFE) == 0;
  const bool documentation = bytes[0] == 0x20 && bytes[1] == 0x01 && bytes[2] == 0x0D && bytes[3] == 0xB8;
  return global && !six_to_four && !special && !documentation;
}

struct Freed {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
  void operator()(char* text) const { ::curl_free(text); }
};
using Url = std::unique_ptr<CURLU, Freed>;

std::string PartOf(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (::curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, Freed> owned(text);
  return text;
}

std::unexpected<api::Error> NoUrl(std::string_view text) {
  return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a valid URL", text));
}

}  // namespace

bool IsPublic(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof(v4));
    return IsPublicV4(ntohl(v4.sin_addr.s_addr));
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof(v6));
  std::array<uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return IsPublicV6(bytes);
}

api::Result<Origin> OriginOf(const std::string& text) {
  const Url url(::curl_url());
  if (url == nullptr || ::curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK)
    return NoUrl(text);
  if (!PartOf(url, CURLUPART_USER).empty() || !PartOf(url, CURLUPART_PASSWORD).empty()) return NoUrl(text);
  Origin origin{.scheme = PartOf(url, CURLUPART_SCHEME),
                .host = api::AsciiLower(PartOf(url, CURLUPART_HOST))};
  if (origin.host.starts_with('[')) origin.host = origin.host.substr(1, origin.host.size() - 2);
  const std::string port = PartOf(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  const auto number = api::ParseInteger<uint16_t>(port);
  const bool known = origin.scheme == "http" || origin.scheme == "https";
  if (!known || origin.host.empty() || !number) return NoUrl(text);
  origin.port = *number;
  return origin;
}

api::Result<std::string> Resolve(const std::string& base, const std::string& reference) {
  const Url url(::curl_url());
  if (url == nullptr || ::curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      ::curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) {
    return NoUrl(reference);
  }
  return PartOf(url, CURLUPART_URL);
}

AddressPolicy::AddressPolicy(std::vector<std::string> trusted) : trusted_(std::move(trusted)) {
  for (std::string& host : trusted_) host = api::AsciiLower(host);
}

bool AddressPolicy::Trusts(const Origin& origin) const {
  const std::string with_port = fmt::format("{}:{}", origin.host, origin.port);
  return std::ranges::any_of(
      trusted_, [&](const std::string& host) { return host == origin.host || host == with_port; });
}

api::Result<void> AddressPolicy::Check(const Origin& origin) const {
  if (origin.scheme == "https" || Trusts(origin)) return {};
  return api::Fail(api::ErrorCode::kForbidden,
                   fmt::format("{}:{}: HTTP is allowed only for trusted registries (--registries)",
                               origin.host, origin.port));
}

}  // namespace quire::server::registry
