#include "server/store/layout.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string>
#include <utility>

namespace quire::server {
namespace {

// All names of a store. One unreadable directory hides no other.
class NameWalk {
 public:
  explicit NameWalk(const StoreDirectory& root) {
    const auto manifests = root.Enter(kManifests);
    for (const std::string& host : ListOrWarn(manifests)) {
      const auto host_directory = manifests->Enter(host);
      for (const std::string& name_space : ListOrWarn(host_directory)) {
        const auto space_directory = host_directory->Enter(name_space);
        for (const std::string& model : ListOrWarn(space_directory)) {
          for (const std::string& tag : ListOrWarn(space_directory->Enter(model))) {
            api::ModelName name{.host = host, .name_space = name_space, .model = model, .tag = tag};
            if (CheckName(name)) {
              names.push_back(std::move(name));
            } else {
              complete = false;  // a manifest of another program names blobs too
            }
          }
        }
      }
    }
  }

  std::vector<api::ModelName> names;
  bool complete = true;  // every directory was read, and every manifest has a name

 private:
  // Empty when it cannot be listed.
  std::vector<std::string> ListOrWarn(const StoreResult<StoreDirectory>& directory) {
    auto listed = directory ? directory->List() : std::unexpected(directory.error());
    if (listed) return *std::move(listed);
    if (listed.error().code != api::ErrorCode::kNotFound) {
      complete = false;
      spdlog::warn("skipped: {}", listed.error().message);
    }
    return {};
  }
};

}  // namespace

api::Result<void> CheckName(const api::ModelName& name) {
  const auto parsed =
      api::ParseModelName(fmt::format("{}/{}/{}:{}", name.host, name.name_space, name.model, name.tag));
  if (!parsed) return std::unexpected(parsed.error());
  if (parsed->host != name.host || parsed->name_space != name.name_space || parsed->model != name.model ||
      parsed->tag != name.tag) {
    return api::Fail(api::ErrorCode::kInvalidArgument, "invalid model name", "model");
  }
  return {};
}

std::unexpected<api::Error> ModelNotFound(const api::ModelName& name) {
  return api::Fail(api::ErrorCode::kNotFound, fmt::format("model '{}' not found", name.Display()));
}

StoreResult<StoreDirectory> EnterModel(const StoreDirectory& root, const api::ModelName& name, bool create) {
  auto directory = root.Enter(kManifests, create);
  for (const std::string* part : {&name.host, &name.name_space, &name.model}) {
    if (!directory) return directory;
    directory = directory->Enter(*part, create);
  }
  return directory;
}

std::vector<api::ModelName> StoredNames(const StoreDirectory& root) { return NameWalk(root).names; }

std::optional<std::vector<api::ModelName>> AllStoredNames(const StoreDirectory& root) {
  NameWalk walk(root);
  if (!walk.complete) return std::nullopt;
  return std::move(walk.names);
}

std::optional<api::ModelName> StoredNameOf(const StoreDirectory& root, const api::ModelName& name) {
  if (const auto tags = EnterModel(root, name, false); tags && tags->Status(name.tag)) return name;
  const auto names = StoredNames(root);
  const auto found =
      std::ranges::find_if(names, [&name](const auto& stored) { return stored.Matches(name); });
  if (found == names.end()) return std::nullopt;
  return *found;
}

}  // namespace quire::server
