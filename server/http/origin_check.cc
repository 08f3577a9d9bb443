#include "server/http/origin_check.h"

#include <algorithm>
#include <array>
#include <boost/system/error_code.hpp>

#include "api/base/ascii.h"

namespace quire::server {
namespace {

namespace ip = boost::asio::ip;

constexpr std::array kDefaultOrigins = {
    "http://localhost",
    "https://localhost",
    "http://localhost:*",
    "https://localhost:*",
    "http://127.0.0.1",
    "https://127.0.0.1",
    "http://127.0.0.1:*",
    "https://127.0.0.1:*",
    "http://0.0.0.0",
    "https://0.0.0.0",
    "http://0.0.0.0:*",
    "https://0.0.0.0:*",
    "app://*",
    "file://*",
    "tauri://*",
    "vscode-webview://*",
    "vscode-file://*",
    "chrome-extension://*",
    "moz-extension://*",
    "safari-extension://*",
    "ms-browser-extension://*",
};

constexpr std::string_view kAllowedMethods = "GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS";
constexpr std::string_view kAllowedHeaders =
    "Authorization,Content-Type,User-Agent,Accept,X-Requested-With,OpenAI-Beta,x-stainless-arch,x-stainless-"
    "async,"
    "x-stainless-custom-poll-interval,x-stainless-helper-method,x-stainless-lang,x-stainless-os,"
    "x-stainless-package-version,x-stainless-poll-helper,x-stainless-retry-count,x-stainless-runtime,"
    "x-stainless-runtime-version,x-stainless-timeout,x-api-key,anthropic-version,anthropic-beta,"
    "anthropic-dangerous-direct-browser-access,OpenAI-Organization,OpenAI-Project,Content-Encoding";
constexpr std::string_view kExposedHeaders =
    "X-Request-Id,request-id,Retry-After,x-ratelimit-limit-requests,x-ratelimit-remaining-requests,"
    "x-ratelimit-reset-requests";
constexpr size_t kRequestedHeadersMax = 64;
constexpr size_t kHeaderNameMax = 128;

bool IsHeaderName(std::string_view name) {
  return std::ranges::all_of(name, [](char c) { return api::IsAsciiAlnum(c) || c == '-' || c == '_'; });
}

// The headers that clients are known to send, and the requested ones: the origin is allowed, whatever it
// sends.
std::string AllowedHeaders(std::string_view requested) {
  std::string allowed(kAllowedHeaders);
  std::string lower = "," + api::AsciiLower(allowed) + ",";
  for (size_t i = 0; i < kRequestedHeadersMax && !requested.empty(); ++i) {
    const size_t comma = std::min(requested.find(','), requested.size());
    const std::string name = api::AsciiLower(api::Trimmed(requested.substr(0, comma), " \t"));
    requested.remove_prefix(std::min(comma + 1, requested.size()));
    if (name.empty() || name.size() > kHeaderNameMax || !IsHeaderName(name)) continue;
    if (lower.contains("," + name + ",")) continue;
    allowed += "," + name;
    lower += name + ",";
  }
  return allowed;
}

// A port, as far as a pattern of the form "http://localhost:*" may stand for it: digits only, so that
// "http://localhost:x.evil.example" is no match.
bool MatchesPortPattern(std::string_view pattern, std::string_view text) {
  pattern.remove_suffix(1);
  if (!text.starts_with(pattern)) return false;
  const std::string_view port = text.substr(pattern.size());
  return !port.empty() && port.size() <= 5 && api::AllAsciiDigits(port);
}

// '*' matches any run of characters, also an empty one.
bool MatchesWildcard(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return std::ranges::all_of(pattern.substr(p), [](char c) { return c == '*'; });
}

bool IsPrivate(const ip::address& address) {
  if (address.is_loopback() || address.is_unspecified()) return true;
  if (address.is_v6()) {
    const ip::address_v6 v6 = address.to_v6();
    if (v6.is_v4_mapped()) return IsPrivate(ip::make_address_v4(ip::v4_mapped, v6));
    return (v6.to_bytes()[0] & 0xFE) == 0xFC;  // fc00::/7
  }
  const auto bytes = address.to_v4().to_bytes();
  return bytes[0] == 10 || (bytes[0] == 172 && (bytes[1] & 0xF0) == 16) ||
         (bytes[0] == 192 && bytes[1] == 168);
}

bool IsLoopback(const ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return ip::make_address_v4(ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

}  // namespace

std::optional<std::string> HostWithoutPort(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t close = host.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view rest = host.substr(close + 1);
    if (!rest.empty() && (rest[0] != ':' || !api::AllAsciiDigits(rest.substr(1)))) return std::nullopt;
    return std::string(host.substr(1, close - 1));
  }
  const size_t colon = host.find(':');
  if (colon == std::string_view::npos) return std::string(host);
  if (!api::AllAsciiDigits(host.substr(colon + 1))) {
    // An IPv6 address without brackets is tolerated as a whole.
    boost::system::error_code ec;
    ip::make_address_v6(std::string(host), ec);
    if (ec) return std::nullopt;
    return std::string(host);
  }
  return std::string(host.substr(0, colon));
}

OriginPolicy::OriginPolicy(const std::vector<std::string>& extra_origins, const std::string& machine_name)
    : machine_name_(api::AsciiLower(machine_name)) {
  patterns_.assign(kDefaultOrigins.begin(), kDefaultOrigins.end());
  for (const std::string& pattern : extra_origins) patterns_.push_back(api::AsciiLower(pattern));
}

bool OriginPolicy::AllowsHost(std::string_view host, const ip::address& local) const {
  if (!IsLoopback(local)) return true;
  const auto bare = HostWithoutPort(host);
  if (!bare) return false;
  std::string name = api::AsciiLower(*bare);
  boost::system::error_code ec;
  const ip::address address = ip::make_address(name, ec);
  if (!ec) return IsPrivate(address) || address == local;
  if (name.ends_with('.')) name.pop_back();
  return name.empty() || name == "localhost" || name == machine_name_ || name.ends_with(".localhost") ||
         name.ends_with(".local") || name.ends_with(".internal");
}

bool OriginPolicy::AllowsOrigin(std::string_view origin, std::string_view host) const {
  const std::string text = api::AsciiLower(origin);
  // Pages from files and sandboxes, of which only a policy for all says anything.
  if (text == "null") return std::ranges::find(patterns_, "*") != patterns_.end();
  if (!text.contains("://")) return false;
  const std::string own = api::AsciiLower(host);
  if (!own.empty() && (text == "http://" + own || text == "https://" + own)) return true;
  return std::ranges::any_of(patterns_, [&text](const std::string& pattern) {
    if (pattern.ends_with(":*")) return MatchesPortPattern(pattern, text);
    return MatchesWildcard(pattern, text);
  });
}

std::vector<HeaderField> CorsFields(std::string_view origin) {
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Access-Control-Expose-Headers", std::string(kExposedHeaders)},
          {"Vary", "Origin"}};
}

HttpResponse PreflightResponse(std::string_view origin, std::string_view requested_headers) {
  HttpResponse response{.status = 204, .content_type = {}};
  response.headers = CorsFields(origin);
  response.headers.push_back({"Access-Control-Allow-Methods", std::string(kAllowedMethods)});
  response.headers.push_back({"Access-Control-Allow-Headers", AllowedHeaders(requested_headers)});
  response.headers.push_back({"Access-Control-Max-Age", "43200"});
  return response;
}

}  // namespace quire::server
