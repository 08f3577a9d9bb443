#include "server/cli/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/model_name.h"
#include "server/cli/local_store.h"
#include "server/cli/table.h"
#include "server/cli/terminal.h"
#include "server/registry/http.h"
#include "server/registry/hub.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
namespace registry = server::registry;
using Json = nlohmann::ordered_json;

constexpr size_t kTokenBytesMax = 4096;
constexpr int kRowsMax = 20;

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

// Where the hub's own programs keep what they know of this user.
fs::path HubHome() {
  if (const auto home = Variable("HF_HOME")) return *home;
  if (const auto cache = Variable("XDG_CACHE_HOME")) return fs::path(*cache) / "huggingface";
  return fs::path(Variable("HOME").value_or("/")) / ".cache/huggingface";
}

fs::path HubCache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto folder = Variable(name)) return *folder;
  }
  return HubHome() / "hub";
}

std::string HubToken() {
  if (const auto token = Variable("HF_TOKEN")) return *token;
  const auto path = Variable("HF_TOKEN_PATH");
  std::ifstream file(path ? fs::path(*path) : HubHome() / "token", std::ios::binary);
  std::string text(kTokenBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return std::string(api::Trimmed(text));
}

std::string ReadSmall(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A file that the cache has of a repository: a link to a blob that is named after its hash.
struct CachedFile {
  registry::HubFile file;
  fs::path blob;
};

std::vector<CachedFile> CachedFiles(const api::ModelName& name) {
  const fs::path folder = HubCache() / fmt::format("models--{}--{}", name.name_space, name.model);
  const std::string commit(api::Trimmed(ReadSmall(folder / "refs/main")));
  if (commit.empty() || commit.find('/') != std::string::npos) return {};
  const fs::path snapshot = folder / "snapshots" / commit;
  std::vector<CachedFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    fs::path blob = fs::canonical(it->path(), error);
    const std::string hash = blob.filename();
    const bool sha256 = hash.size() == 64;
    files.push_back({{.path = it->path().lexically_relative(snapshot),
                      .size = 0,
                      .sha256 = sha256 ? hash : "",
                      .git_hash = sha256 ? "" : hash},
                     std::move(blob)});
  }
  return files;
}

std::string HubEndpoint() {
  std::string endpoint = registry::ReadHubSettings().endpoint;
  endpoint.resize(endpoint.find_last_not_of('/') + 1);
  return endpoint;
}

std::string QueryText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += api::IsAsciiAlnum(c) ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

// The rows of one search, best first.
api::Result<Json> SearchHub(const std::string& word, std::string_view filter) {
  const std::string endpoint = HubEndpoint();
  const auto origin = registry::OriginOf(endpoint);
  if (!origin) return std::unexpected(origin.error());
  const registry::AddressPolicy policy({origin->host});  // the user's own word
  const std::atomic<bool> never = false;
  registry::Http http(policy, never);
  registry::Request request{
      .url = fmt::format("{}/api/models?search={}&filter={}&sort=downloads&direction=-1&limit={}", endpoint,
                         QueryText(word), filter, kRowsMax)};
  request.proxies = true;
  if (const std::string token = HubToken(); !token.empty())
    request.headers.push_back("Authorization: Bearer " + token);
  const auto reply = http.Exchange(request);
  if (!reply) return std::unexpected(reply.error());
  const Json rows = Json::parse(reply->body, nullptr, false);
  if (reply->status != 200 || !rows.is_array()) {
    return api::Fail(api::ErrorCode::kUnavailable,
                     fmt::format("{} returned HTTP {}", endpoint, reply->status));
  }
  return rows;
}

std::string CellOf(const Json& row, const char* name) {
  const auto found = row.is_object() ? row.find(name) : row.end();
  if (!row.is_object() || found == row.end()) return {};
  return found->is_string()           ? found->get<std::string>()
         : found->is_number_integer() ? found->dump()
                                      : std::string();
}

}  // namespace

std::string PullBody(const Client& client, const std::string& model, bool insecure) {
  Json body = {{"model", model}, {"insecure", insecure}};
  const auto name = api::ParseModelName(model);
  if (!name || !registry::IsOfHub(*name)) return Dump(body);
  if (const auto mirror = Variable("HF_ENDPOINT")) body["hub_endpoint"] = *mirror;
  const std::string token = HubToken();
  if (token.empty()) return Dump(body);
  if (client.endpoint().https || IsLocal(client.endpoint())) {
    body["hub_token"] = token;
  } else {
    fmt::print(stderr,
               "the hub's token is not sent: the daemon is on another machine, and reached without TLS\n");
  }
  return Dump(body);
}

void BringCachedFiles(Client& client, const std::string& model) {
  const auto name = api::ParseModelName(model);
  if (!name || !registry::IsOfHub(*name) || !LocalStore::Find(client.endpoint())) return;
  const auto cached = CachedFiles(*name);
  if (cached.empty()) return;
  const auto shown = client.Post("/api/show", Dump({{"model", model}}));
  if (shown || shown.error().code != api::ErrorCode::kNotFound) return;
  std::vector<registry::HubFile> files;
  files.reserve(cached.size());
  for (const CachedFile& each : cached) files.push_back(each.file);
  const auto choice = registry::ChooseFiles(files, name->tag);
  if (!choice) return;
  for (const registry::HubFile& file : choice->files) {
    const auto found =
        std::ranges::find(cached, file.path, [](const CachedFile& each) { return each.file.path; });
    if (file.sha256.empty() || found == cached.end()) continue;
    const auto digest = DigestOfFile(found->blob);
    if (!digest || *digest != "sha256:" + file.sha256) {
      fmt::print(stderr, "{}: not the file that its name says; it is fetched\n", found->blob.string());
      continue;
    }
    const auto brought = BringFile(client, found->blob, *digest, /*may_link=*/true, {});
    if (brought) fmt::print(stderr, "{} {} from {}\n", PastTense(*brought), file.path, HubCache().string());
  }
}

int Search(const Arguments& arguments) {
  std::vector<std::vector<std::string>> rows = {{"NAME", "FILES", "DOWNLOADS", "LIKES", "MODIFIED"}};
  std::set<std::string> seen;
  for (const char* filter : {"gguf", "safetensors"}) {
    const auto found = SearchHub(arguments.query, filter);
    if (!found) return PrintError(found.error());
    for (const Json& row : *found) {
      const std::string id = CellOf(row, "id");
      if (id.empty() || !seen.insert(id).second) continue;
      rows.push_back({"hf.co/" + id, filter, CellOf(row, "downloads"), CellOf(row, "likes"),
                      CellOf(row, "lastModified").substr(0, 10)});
    }
  }
  if (rows.size() == 1) {
    return PrintError({api::ErrorCode::kNotFound,
                       fmt::format("{} has no model for \"{}\"", HubEndpoint(), arguments.query)});
  }
  fmt::print("{}", FormatTable(rows));
  return 0;
}

}  // namespace quire::cli
