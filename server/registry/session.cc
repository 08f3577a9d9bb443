#include "server/registry/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/json/read.h"
#include "server/registry/challenge.h"

namespace quire::server::registry {
namespace {

constexpr int kRedirectsMax = 5;
constexpr size_t kTokenBytesMax = size_t{64} << 10;
constexpr size_t kAccountsBytesMax = size_t{1} << 20;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (api::IsAsciiAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// Characters allowed in a header.
bool IsPlain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

std::unexpected<api::Error> Unauthorized(const std::string& host, std::string_view why) {
  return api::Fail(api::ErrorCode::kForbidden, fmt::format("{}: {}", host, why));
}

}  // namespace

api::Result<std::map<std::string, std::string>> ReadAccounts(const std::filesystem::path& path) {
  const auto refuse = [&path](std::string_view why) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), why));
  };
  std::ifstream file(path, std::ios::binary);
  std::string text(kAccountsBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() || file.bad()) return refuse("cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  const auto json = api::ReadJson(text);
  if (!json || !json->is_object()) return refuse("not a JSON object");
  std::map<std::string, std::string> accounts;
  const auto auths = json->find("auths");
  if (auths == json->end()) return accounts;
  if (!auths->is_object()) return refuse("\"auths\" is not an object");
  for (const auto& [host, entry] : auths->get_ref<const api::Json::object_t&>()) {
    const auto auth = entry.is_object() ? entry.find("auth") : entry.end();
    if (!entry.is_object() || auth == entry.end() || !auth->is_string()) continue;
    const auto& value = auth->get_ref<const std::string&>();
    if (!IsPlain(value)) return refuse(fmt::format("the \"auth\" of \"{}\" is not base64", host));
    std::string_view bare = host;
    if (const size_t scheme = bare.find("://"); scheme != std::string_view::npos)
      bare.remove_prefix(scheme + 3);
    accounts[api::AsciiLower(bare.substr(0, bare.find('/')))] = value;
  }
  return accounts;
}

Session::Session(const Settings& settings, const AddressPolicy& policy, const api::ModelName& name,
                 bool insecure, bool push, const std::atomic<bool>& cancelled)
    : settings_(&settings),
      http_(policy, cancelled),
      name_(name),
      push_(push),
      base_(fmt::format("{}://{}/v2/{}/{}/", insecure ? "http" : "https", name.host, name.name_space,
                        name.model)),
      origin_(OriginOf(base_).value_or(Origin{})) {}

Session::Session(const AddressPolicy& policy, std::string base, std::string_view token, std::string denied,
                 const std::atomic<bool>& cancelled)
    : http_(policy, cancelled),
      base_(std::move(base)),
      origin_(OriginOf(base_).value_or(Origin{})),
      authorization_(token.empty() ? std::string() : fmt::format("Bearer {}", token)),
      denied_(std::move(denied)) {}

std::string Session::UrlOf(std::string_view path) const { return base_ + std::string(path); }

const std::string* Session::Account() const {
  for (const std::string& key : {fmt::format("{}:{}", origin_.host, origin_.port), origin_.host}) {
    if (const auto found = settings_->accounts.find(key); found != settings_->accounts.end())
      return &found->second;
  }
  return nullptr;
}

api::Result<Reply> Session::Send(const Request& request, const Sink& sink) {
  auto reply = SendAs(request, sink);
  if (!reply || reply->status != 401 || settings_ == nullptr) return reply;
  if (auto authorized = Authorize(reply->Header("www-authenticate")); !authorized) {
    return std::unexpected(authorized.error());
  }
  reply = SendAs(request, sink);
  if (reply && reply->status == 401)
    return Unauthorized(origin_.host, "the registry rejected the credentials");
  return reply;
}

api::Result<Reply> Session::SendAs(const Request& request, const Sink& sink) {
  Request now = request;
  now.proxies = true;
  for (int redirects = 0;; ++redirects) {
    now.headers = request.headers;
    const auto origin = OriginOf(now.url);
    if (!origin) return std::unexpected(origin.error());
    if (*origin == origin_ && !authorization_.empty())
      now.headers.push_back("Authorization: " + authorization_);
    auto reply = http_.Exchange(now, sink);
    const bool followed = request.method == "GET" || request.method == "HEAD";
    if (reply && settings_ == nullptr && *origin == origin_ && (reply->status == 401 || reply->status == 403))
      return Unauthorized(origin_.host, denied_);
    if (!reply || !followed || !IsRedirect(reply->status)) return reply;
    if (redirects == kRedirectsMax) {
      return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: too many redirects", origin_.host));
    }
    auto next = Resolve(now.url, reply->Header("location"));
    if (!next) return std::unexpected(next.error());
    const auto target = OriginOf(*next);
    if (target && origin->scheme == "https" && target->scheme != "https") {
      return api::Fail(api::ErrorCode::kForbidden,
                       fmt::format("{}: redirected from HTTPS to HTTP", origin_.host));
    }
    now.url = *std::move(next);
  }
}

api::Result<void> Session::Authorize(const std::string& field) {
  const Challenge challenge = ParseChallenge(field);
  if (challenge.scheme == "basic") {
    const std::string* account = Account();
    if (account == nullptr)
      return Unauthorized(origin_.host, "the registry requires credentials, and none are configured");
    authorization_ = "Basic " + *account;
    return {};
  }
  if (challenge.scheme != "bearer")
    return Unauthorized(origin_.host, "the registry requires an unsupported authentication scheme");
  const auto token = FetchToken(challenge);
  if (!token) return std::unexpected(token.error());
  authorization_ = "Bearer " + *token;
  return {};
}

api::Result<std::string> Session::FetchToken(const Challenge& challenge) {
  const std::string realm = challenge.Parameter("realm");
  const auto origin = OriginOf(realm);
  if (!origin) return std::unexpected(origin.error());
  if (origin_.scheme == "https" && origin->scheme != "https") {
    return Unauthorized(origin_.host, "the registry's token service does not use HTTPS");
  }
  const std::string scope =
      fmt::format("repository:{}/{}:{}", name_.name_space, name_.model, push_ ? "pull,push" : "pull");
  Request request{.url = fmt::format("{}{}service={}&scope={}", realm, realm.contains('?') ? "&" : "?",
                                     Escaped(challenge.Parameter("service")), Escaped(scope))};
  request.proxies = true;
  if (const std::string* account = Account(); account != nullptr && *origin == origin_) {
    request.headers.push_back("Authorization: Basic " + *account);
  }
  const auto reply = http_.Exchange(request);
  if (!reply) return std::unexpected(reply.error());
  const auto json = api::ReadJson(reply->body);
  if (reply->status != 200 || !json || !json->is_object()) {
    return Unauthorized(origin->host, fmt::format("cannot get a token (HTTP {})", reply->status));
  }
  for (const char* name : {"token", "access_token"}) {
    const auto token = json->find(name);
    if (token == json->end() || !token->is_string()) continue;
    auto text = token->get<std::string>();
    if (!text.empty() && text.size() <= kTokenBytesMax && IsPlain(text)) return text;
  }
  return Unauthorized(origin->host, "the response contains no token");
}

}  // namespace quire::server::registry
