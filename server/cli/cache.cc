#include "server/cli/cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "api/base/duration.h"
#include "server/cli/table.h"
#include "server/cli/terminal.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kPrefixes = "/quire/prefixes";
constexpr size_t kIdShown = 12;

std::unexpected<api::Error> Invalid(std::string message) {
  return api::Fail(api::ErrorCode::kInvalidArgument, std::move(message));
}

api::Result<Json> ParseReply(std::string_view body) {
  Json json = Json::parse(body, nullptr, false);
  if (!json.is_object()) return api::Fail(api::ErrorCode::kInternal, "the server returned an invalid reply");
  return json;
}

std::string TextOf(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

int64_t NumberOf(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

bool FlagOf(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

std::string AgeOf(const Json& prefix) {
  return FormatAge(std::chrono::seconds(NumberOf(prefix, "unused_seconds")));
}

std::string OwnerOf(const Json& prefix) {
  const std::string tenant = TextOf(prefix, "tenant");
  return (tenant.empty() ? "-" : tenant) + (FlagOf(prefix, "salted") ? " (salted)" : "");
}

int PrintText(const api::Result<std::string>& text) {
  if (!text) return PrintError(text.error());
  fmt::print("{}", *text);
  return 0;
}

int ListPrefixes(Client& client, const CacheOptions& options) {
  const auto body = client.Get(kPrefixes);
  return body ? PrintText(PrefixTable(*body, options.model)) : PrintError(body.error());
}

int ShowPrefixes(Client& client, const CacheOptions& options) {
  if (options.arguments.empty()) return PrintError({api::ErrorCode::kInvalidArgument, "show: which prefix?"});
  for (const std::string& id : options.arguments) {
    const auto body = client.Get(fmt::format("{}/{}", kPrefixes, id));
    const int code = body ? PrintText(PrefixText(*body)) : PrintError(body.error());
    if (code != 0) return code;
  }
  return 0;
}

// Private, as prompts are.
api::Result<void> DownloadPrefixes(Client& client, const CacheOptions& options, const fs::path& path) {
  const auto failed = [&path] {
    return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: cannot be written", path.string()));
  };
  const mode_t mask = ::umask(077);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  ::umask(mask);
  for (const std::string& id : options.arguments) {
    auto done = client.Download(fmt::format("{}/{}/file", kPrefixes, id),
                                [&](std::string_view bytes) -> api::Result<void> {
                                  if (file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())))
                                    return {};
                                  return failed();
                                });
    if (!done) return done;
  }
  if (!file.flush()) return failed();
  return {};
}

int ExportPrefixes(Client& client, const CacheOptions& options) {
  if (options.arguments.empty() || options.output.empty()) {
    return PrintError({api::ErrorCode::kInvalidArgument, "export: give ids of prefixes, and --output FILE"});
  }
  const fs::path part = options.output + ".part";
  std::error_code error;
  if (const auto done = DownloadPrefixes(client, options, part); !done) {
    fs::remove(part, error);
    return PrintError(done.error());
  }
  fs::rename(part, options.output, error);
  if (error) return PrintError({api::ErrorCode::kUnavailable, options.output + ": " + error.message()});
  const auto bytes = static_cast<int64_t>(fs::file_size(options.output, error));
  fmt::print(
      "exported {} to '{}' ({})\n",
      options.arguments.size() == 1 ? "1 prefix" : fmt::format("{} prefixes", options.arguments.size()),
      options.output, FormatSize(bytes));
  return 0;
}

std::string Encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += std::isalnum(byte) != 0 ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

int ImportPrefixes(Client& client, const CacheOptions& options) {
  if (options.arguments.empty())
    return PrintError({api::ErrorCode::kInvalidArgument, "import: which files?"});
  const std::string path = kPrefixes + (options.key ? "?key=" + Encoded(*options.key) : "");
  for (const std::string& file : options.arguments) {
    const auto body = client.PostFile(path, file, [](int64_t) {});
    if (!body) {
      return PrintError({body.error().code, fmt::format("{}: {}", file, body.error().message)});
    }
    const auto json = ParseReply(*body);
    if (!json) return PrintError(json.error());
    const auto ids = json->find("ids");
    const size_t count = ids != json->end() && ids->is_array() ? ids->size() : 0;
    fmt::print("imported {} from '{}': {} tokens, {} segments written, {} were there\n",
               count == 1 ? "1 prefix" : fmt::format("{} prefixes", count), file, NumberOf(*json, "tokens"),
               NumberOf(*json, "segments_written"), NumberOf(*json, "segments_existing"));
    for (size_t i = 0; i < count; ++i)
      fmt::print("{}\n", (*ids)[i].is_string() ? (*ids)[i].get<std::string>().substr(0, kIdShown) : "");
  }
  return 0;
}

int PrunePrefixes(Client& client, const CacheOptions& options) {
  const auto request = PruneBody(options);
  if (!request) return PrintError(request.error());
  const auto body = client.Delete(kPrefixes, *request);
  const auto json = body ? ParseReply(*body) : std::unexpected(body.error());
  if (!json) return PrintError(json.error());
  fmt::print("removed {} prefixes, {} files, {}\n", NumberOf(*json, "prefixes"), NumberOf(*json, "files"),
             FormatSize(NumberOf(*json, "bytes")));
  return 0;
}

}  // namespace

api::Result<std::string> PrefixTable(std::string_view body, std::string_view model) {
  const auto json = ParseReply(body);
  if (!json) return std::unexpected(json.error());
  std::vector<std::vector<std::string>> rows = {{"ID", "MODEL", "TOKENS", "SIZE", "HITS", "USED", "TENANT"}};
  const auto prefixes = json->find("prefixes");
  if (prefixes != json->end() && prefixes->is_array()) {
    for (const Json& prefix : *prefixes) {
      const std::string name = TextOf(prefix, "model");
      if (!model.empty() && name != model && name != std::string(model) + ":latest") continue;
      rows.push_back({TextOf(prefix, "id").substr(0, kIdShown), name,
                      std::to_string(NumberOf(prefix, "tokens")), FormatSize(NumberOf(prefix, "bytes")),
                      std::to_string(NumberOf(prefix, "hits")), AgeOf(prefix), OwnerOf(prefix)});
    }
  }
  return fmt::format("{}\n{} of {} in {} files{}\n", FormatTable(rows), FormatSize(NumberOf(*json, "bytes")),
                     FormatSize(NumberOf(*json, "budget_bytes")), NumberOf(*json, "files"),
                     FlagOf(*json, "writing") ? "" : "; writing is off after an error");
}

api::Result<std::string> PrefixText(std::string_view body) {
  const auto json = ParseReply(body);
  if (!json) return std::unexpected(json.error());
  const std::vector<std::vector<std::string>> rows = {
      {"id", TextOf(*json, "id")},
      {"model", TextOf(*json, "model")},
      {"tokens", std::to_string(NumberOf(*json, "tokens"))},
      {"size",
       fmt::format("{} in {} segments", FormatSize(NumberOf(*json, "bytes")), NumberOf(*json, "segments"))},
      {"used", AgeOf(*json)},
      {"hits", std::to_string(NumberOf(*json, "hits"))},
      {"tenant", OwnerOf(*json)},
      {"files", TextOf(*json, "files")},
      {"machine", TextOf(*json, "byte_class")},
      {"runner", TextOf(*json, "program")}};
  return FormatTable(rows);
}

api::Result<std::string> PruneBody(const CacheOptions& options) {
  Json body = Json::object();
  if (!options.arguments.empty()) body["ids"] = options.arguments;
  if (!options.model.empty()) body["model"] = options.model;
  if (!options.unused.empty()) {
    const auto time = api::ParseDurationOrSeconds(options.unused);
    if (!time || time->count() < 0) return Invalid("--unused must be a time such as 36h or 30m");
    body["unused_seconds"] = std::chrono::duration_cast<std::chrono::seconds>(*time).count();
  }
  if (options.all == !body.empty())
    return Invalid("prune: say which: ids, --model, --unused, or --all alone");
  if (options.all) body["all"] = true;
  return Dump(body);
}

int Cache(Client& client, const CacheOptions& options) {
  if (options.action == "list") return ListPrefixes(client, options);
  if (options.action == "show") return ShowPrefixes(client, options);
  if (options.action == "export") return ExportPrefixes(client, options);
  if (options.action == "import") return ImportPrefixes(client, options);
  return PrunePrefixes(client, options);
}

}  // namespace quire::cli
