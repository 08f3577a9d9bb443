#include "server/registry/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/base/ascii.h"
#include "api/json/fields.h"
#include "api/json/read.h"
#include "server/registry/address_policy.h"

namespace quire::server::registry {
namespace {

constexpr std::array<std::string_view, 3> kHuggingFace = {"hf.co", "huggingface.co", "www.huggingface.co"};
constexpr std::array<std::string_view, 2> kModelScope = {"modelscope.cn", "www.modelscope.cn"};
constexpr size_t kPathBytesMax = 1024;

template <size_t kCount>
bool IsOneOf(const std::array<std::string_view, kCount>& hosts, std::string_view host) {
  return std::ranges::any_of(hosts,
                             [host](std::string_view each) { return api::EqualIgnoringCase(each, host); });
}

std::string Variable(const char* name, std::string otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::string(value) : std::move(otherwise);
}

bool IsHex(std::string_view text, size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax || path.front() == '/') return false;
  const auto plain = [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != '\x7F' && c != '\\'; };
  return std::ranges::all_of(path, plain) && fmt::format("/{}/", path).find("/../") == std::string::npos;
}

std::string EscapedPath(std::string_view text, bool slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain =
        api::IsAsciiAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~' || (slashes && c == '/');
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

// A text that is a header's value as a whole.
bool IsToken(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

}  // namespace

HubSettings ReadHubSettings() {
  HubSettings settings;
  settings.endpoint = Variable("HF_ENDPOINT", settings.endpoint);
  settings.token = Variable("HF_TOKEN", {});
  settings.modelscope_domain = Variable("MODELSCOPE_DOMAIN", settings.modelscope_domain);
  return settings;
}

bool IsOfHub(const api::ModelName& name) {
  return IsOneOf(kHuggingFace, name.host) || IsOneOf(kModelScope, name.host);
}

api::Result<HubRepository> HubRepository::Of(const api::ModelName& name, const HubSettings& settings,
                                             const HubRequest& request) {
  HubRepository repository;
  repository.path_ = fmt::format("{}/{}", name.name_space, name.model);
  repository.modelscope_ = IsOneOf(kModelScope, name.host);
  if (repository.modelscope_) {
    repository.endpoint_ = "https://" + settings.modelscope_domain;
    return repository;
  }
  repository.endpoint_ = request.endpoint.empty() ? settings.endpoint : request.endpoint;
  repository.endpoint_.resize(repository.endpoint_.find_last_not_of('/') + 1);
  const auto origin = OriginOf(repository.endpoint_);
  if (!origin) return api::Fail(api::ErrorCode::kInvalidArgument, origin.error().message, "hub_endpoint");
  const auto own_origin = OriginOf(settings.endpoint);
  const bool own = own_origin && *origin == *own_origin;
  repository.token_ = !request.token.empty() || !own ? request.token : settings.token;
  if (!IsToken(repository.token_)) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "the hub's token has characters that no token has",
                     "hub_token");
  }
  return repository;
}

std::string HubRepository::ListUrl() const {
  if (modelscope_) {
    return fmt::format("{}/api/v1/models/{}/repo/files?Revision=master&Recursive=true", endpoint_, path_);
  }
  return fmt::format("{}/api/models/{}/tree/main?recursive=true", endpoint_, path_);
}

std::string HubRepository::FileUrl(std::string_view path) const {
  if (modelscope_) {
    return fmt::format("{}/api/v1/models/{}/repo?Revision=master&FilePath={}", endpoint_, path_,
                       EscapedPath(path, false));
  }
  return fmt::format("{}/{}/resolve/main/{}", endpoint_, path_, EscapedPath(path, true));
}

api::Result<std::vector<HubFile>> HubRepository::ParseList(std::string_view body) const {
  const auto refuse = [this](std::string_view why) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: the list of {}: {}", endpoint_, path_, why));
  };
  const auto json = api::ReadJson(body);
  if (!json) return refuse(json.error().message);
  static const api::Json kNone = api::Json::array();
  const auto member = [](const api::Json& object, const char* name) -> const api::Json& {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return object.is_object() && found != object.end() ? *found : kNone;
  };
  const api::Json& rows = modelscope_ ? member(member(*json, "Data"), "Files") : *json;
  if (!rows.is_array() || (modelscope_ && &rows == &kNone)) return refuse("not a list");
  std::vector<HubFile> files;
  for (const api::Json& row : rows) {
    api::FirstError error;
    api::Fields fields(row, "", error);
    HubFile file;
    std::string type;
    fields.Get(modelscope_ ? "Type" : "type", type);
    if (error) return refuse(error->message);
    if (type != (modelscope_ ? "blob" : "file")) continue;
    fields.Get(modelscope_ ? "Path" : "path", file.path);
    fields.Get(modelscope_ ? "Size" : "size", file.size);
    if (modelscope_) {
      fields.Get("Sha256", file.sha256);
    } else if (const api::Json& large = member(row, "lfs"); large.is_object()) {
      api::Fields lfs(large, "lfs", error);
      lfs.Get("oid", file.sha256);
      lfs.Get("size", file.size);
    } else {
      fields.Get("oid", file.git_hash);
    }
    if (error) return refuse(error->message);
    if (!IsSafePath(file.path) || file.size < 0) continue;
    if (!IsHex(file.sha256, 64) && !IsHex(file.git_hash, 40))
      return refuse(fmt::format("{} has no hash", file.path));
    files.push_back(std::move(file));
  }
  return files;
}

std::string NextPage(std::string_view link) {
  while (!link.empty()) {
    const size_t begin = link.find('<'), end = link.find('>');
    if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
    const std::string_view parameters = link.substr(end, link.find('<', end) - end);
    if (parameters.find("rel=\"next\"") != std::string_view::npos)
      return std::string(link.substr(begin + 1, end - begin - 1));
    link.remove_prefix(end + 1);
    link.remove_prefix(std::min(link.find('<'), link.size()));
  }
  return {};
}

}  // namespace quire::server::registry
