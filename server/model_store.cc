#include "server/model_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "server/model_manifest.h"
#include "server/sha256.h"
#include "server/store_files.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifests = "manifests";
constexpr const char* kBlobs = "blobs";
constexpr const char* kLockFile = ".quire-lock";
constexpr int64_t kManifestBytesMax = int64_t{1} << 20;
constexpr int64_t kTextBlobBytesMax = int64_t{16} << 20;

std::string UserName() {
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  const uid_t uid = ::geteuid();
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return fmt::format("user {} (uid {})", entry.pw_name, uid);
  }
  return fmt::format("uid {}", uid);
}

std::unexpected<api::Error> RightMissing(const fs::path& path, std::string_view right, int error) {
  return api::Fail(api::ErrorCode::kInternal, fmt::format("{}: {} may not {}: {}", path.string(), UserName(),
                                                          right, std::generic_category().message(error)));
}

// Makes the directory and those above it, 0700 each, and sees to it that this user can read it.
api::Result<void> PrepareDirectory(const fs::path& path) {
  fs::path prefix;
  for (const fs::path& part : path) {
    prefix /= part;
    if (::mkdir(prefix.c_str(), 0700) == 0) continue;
    // Whatever is in the way shows when the next part, or the access below, is tried.
    std::error_code ignored;
    const int error = errno;
    if (!fs::is_directory(prefix, ignored)) return RightMissing(prefix, "create this directory", error);
  }
  if (::faccessat(AT_FDCWD, path.c_str(), R_OK | X_OK, AT_EACCESS) != 0) {
    return RightMissing(path, "read this directory", errno);
  }
  return {};
}

// The parts are used as file names: they must be exactly what the rules for names allow.
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

std::unexpected<api::Error> NotFound(const api::ModelName& name) {
  return api::Fail(api::ErrorCode::kNotFound, fmt::format("model \"{}\" not found", name.Display()));
}

// manifests/HOST/NAMESPACE/MODEL, the directory of the tags.
api::Result<StoreDirectory> EnterModel(const StoreDirectory& root, const api::ModelName& name, bool create) {
  auto directory = root.Enter(kManifests, create);
  for (const std::string* part : {&name.host, &name.name_space, &name.model}) {
    if (!directory) return directory;
    directory = directory->Enter(*part, create);
  }
  return directory;
}

// What `directory` lists, or nothing when it cannot be listed: one unreadable directory hides no other.
std::vector<std::string> ListOrWarn(const api::Result<StoreDirectory>& directory) {
  if (!directory) {
    if (directory.error().code != api::ErrorCode::kNotFound)
      spdlog::warn("left out: {}", directory.error().message);
    return {};
  }
  auto names = directory->List();
  if (!names) {
    spdlog::warn("left out: {}", names.error().message);
    return {};
  }
  return std::move(*names);
}

// The names of all manifests; what is not four levels deep or not a name is no manifest.
std::vector<api::ModelName> StoredNames(const StoreDirectory& root) {
  std::vector<api::ModelName> names;
  const auto manifests = root.Enter(kManifests);
  for (const std::string& host : ListOrWarn(manifests)) {
    const auto host_directory = manifests->Enter(host);
    for (const std::string& name_space : ListOrWarn(host_directory)) {
      const auto space_directory = host_directory->Enter(name_space);
      for (const std::string& model : ListOrWarn(space_directory)) {
        for (const std::string& tag : ListOrWarn(space_directory->Enter(model))) {
          api::ModelName name{.host = host, .name_space = name_space, .model = model, .tag = tag};
          if (CheckName(name)) names.push_back(std::move(name));
        }
      }
    }
  }
  return names;
}

// The name as it is stored: itself, or one that differs in case only; nothing when there is neither.
std::optional<api::ModelName> StoredNameOf(const StoreDirectory& root, const api::ModelName& name) {
  if (const auto tags = EnterModel(root, name, false); tags && tags->Status(name.tag)) return name;
  const auto names = StoredNames(root);
  const auto found =
      std::ranges::find_if(names, [&name](const auto& stored) { return stored.Matches(name); });
  if (found == names.end()) return std::nullopt;
  return *found;
}

// Reads one model: its manifest, then every blob that is text, then a look at the weights.
class ModelReader {
 public:
  ModelReader(const StoreDirectory& root, const api::ModelName& name) : root_(root), name_(name) {}

  // kBadModel when anything is broken or missing.
  api::Result<StoredModel> Read() {
    auto model = ReadAll();
    if (!model) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("model \"{}\" is broken: {}", name_.Display(), model.error().message));
    }
    return model;
  }

 private:
  api::Result<StoredModel> ReadAll() {
    const auto tags = EnterModel(root_, name_, false);
    if (!tags) return std::unexpected(tags.error());
    const auto status = tags->Status(name_.tag);
    if (!status) return std::unexpected(status.error());
    const auto text = tags->Read(name_.tag, kManifestBytesMax);
    if (!text) return std::unexpected(text.error());
    const auto manifest = ParseManifest(*text);
    if (!manifest) return In(tags->path() / name_.tag, manifest.error());
    auto blobs = root_.Enter(kBlobs);
    if (!blobs) return std::unexpected(blobs.error());

    StoredModel model;
    model.name = name_;
    model.digest = Sha256Of(*text);
    model.size = manifest->TotalSize();
    model.modified_at = status->modified_at;
    if (auto read = ReadConfig(*blobs, *manifest, model); !read) return std::unexpected(read.error());
    if (auto read = FindWeights(*blobs, *manifest, model); !read) return std::unexpected(read.error());
    for (const Layer& layer : manifest->layers) {
      if (auto read = ReadTextLayer(*blobs, layer, model); !read) return std::unexpected(read.error());
    }
    return model;
  }

  static std::unexpected<api::Error> In(const fs::path& file, const api::Error& error) {
    return api::Fail(error.code, fmt::format("{}: {}", file.string(), error.message));
  }

  static api::Result<void> ReadConfig(const StoreDirectory& blobs, const Manifest& manifest,
                                      StoredModel& model) {
    const auto text = blobs.Read(manifest.config.blob, kManifestBytesMax);
    if (!text) return std::unexpected(text.error());
    auto details = ParseModelConfig(*text);
    if (!details) return In(blobs.path() / manifest.config.blob, details.error());
    model.details = std::move(*details);
    return {};
  }

  static api::Result<void> FindWeights(const StoreDirectory& blobs, const Manifest& manifest,
                                       StoredModel& model) {
    const Layer* weights = manifest.Find(kModelLayer);
    if (weights == nullptr) return api::Fail(api::ErrorCode::kBadModel, "it has no weights");
    if (manifest.Find(kAdapterLayer) != nullptr) {
      return api::Fail(api::ErrorCode::kBadModel, "it has an adapter, and adapters are not supported");
    }
    const auto status = blobs.Status(weights->blob);
    if (!status) return std::unexpected(status.error());
    if (status->size != weights->size) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("{}: {} bytes, but its manifest says {}",
                                   (blobs.path() / weights->blob).string(), status->size, weights->size));
    }
    model.weights = blobs.path() / weights->blob;
    return {};
  }

  static api::Result<void> ReadTextLayer(const StoreDirectory& blobs, const Layer& layer,
                                         StoredModel& model) {
    constexpr std::array kTextLayers = {kTemplateLayer, kSystemLayer, kLicenseLayer, kParamsLayer,
                                        kMessagesLayer};
    if (std::ranges::find(kTextLayers, layer.media_type) == kTextLayers.end()) return {};
    auto text = blobs.Read(layer.blob, kTextBlobBytesMax);
    if (!text) return std::unexpected(text.error());
    const fs::path file = blobs.path() / layer.blob;
    if (layer.media_type == kTemplateLayer) model.go_template = std::move(*text);
    if (layer.media_type == kSystemLayer) model.system = std::move(*text);
    if (layer.media_type == kLicenseLayer) model.licenses.push_back(std::move(*text));
    if (layer.media_type == kMessagesLayer) {
      auto messages = ParseMessages(*text);
      if (!messages) return In(file, messages.error());
      model.messages = std::move(*messages);
    }
    if (layer.media_type == kParamsLayer) {
      auto parameters = ParseParameters(*text);
      if (!parameters) return In(file, parameters.error());
      model.parameters = std::move(*parameters);
      model.parameters_json = std::move(*text);
    }
    return {};
  }

  const StoreDirectory& root_;
  const api::ModelName& name_;
};

// Puts a model's blobs and, last, its manifest in place. REQUIRES: the store's lock is held.
class ModelWriter {
 public:
  ModelWriter(const StoreDirectory& root, const NewModel& model) : root_(root), model_(model) {}

  api::Result<void> Write(const api::ModelName& name) {
    auto blobs = root_.Enter(kBlobs, true);
    if (!blobs) return std::unexpected(blobs.error());
    if (auto added = AddWeights(*blobs); !added) return added;
    const std::array<std::pair<std::string_view, const std::string*>, 3> texts = {{
        {kLicenseLayer, &model_.license},
        {kSystemLayer, &model_.system},
        {kParamsLayer, &model_.parameters_json},
    }};
    for (const auto& [media_type, text] : texts) {
      if (text->empty()) continue;
      auto layer = AddText(*blobs, media_type, *text);
      if (!layer) return std::unexpected(layer.error());
      manifest_.layers.push_back(std::move(*layer));
    }
    auto config = AddText(*blobs, "", WriteModelConfig(model_.details, manifest_.layers));
    if (!config) return std::unexpected(config.error());
    manifest_.config = std::move(*config);
    return WriteManifestFile(name);
  }

 private:
  // A blob's content is its name, so one that is there with the right size is the one.
  static bool IsThere(const StoreDirectory& blobs, const std::string& blob, int64_t size) {
    const auto status = blobs.Status(blob);
    return status && status->size == size;
  }

  api::Result<void> AddWeights(const StoreDirectory& blobs) {
    const auto copied = blobs.CopyIn(model_.gguf);
    if (!copied) return std::unexpected(copied.error());
    Layer layer{
        .media_type = std::string(kModelLayer), .blob = "sha256-" + copied->sha256, .size = copied->size};
    if (IsThere(blobs, layer.blob, layer.size)) {
      blobs.DropTemporary();
    } else if (auto published = blobs.Publish(layer.blob); !published) {
      return published;
    }
    manifest_.layers.push_back(std::move(layer));
    return {};
  }

  static api::Result<Layer> AddText(const StoreDirectory& blobs, std::string_view media_type,
                                    std::string_view text) {
    Layer layer{.media_type = std::string(media_type),
                .blob = "sha256-" + Sha256Of(text),
                .size = static_cast<int64_t>(text.size())};
    if (IsThere(blobs, layer.blob, layer.size)) return layer;
    if (auto written = blobs.Write(layer.blob, text); !written) return std::unexpected(written.error());
    return layer;
  }

  api::Result<void> WriteManifestFile(const api::ModelName& name) {
    const auto tags = EnterModel(root_, name, true);
    if (!tags) return std::unexpected(tags.error());
    const std::string text = WriteManifest(manifest_);
    // The same model again keeps its time of change.
    if (const auto stored = tags->Read(name.tag, kManifestBytesMax); stored && *stored == text) return {};
    return tags->Write(name.tag, text);
  }

  const StoreDirectory& root_;
  const NewModel& model_;
  Manifest manifest_;
};

}  // namespace

api::Result<ModelStore> ModelStore::Open(fs::path root) {
  for (const fs::path& directory : {root, root / kManifests, root / kBlobs}) {
    if (auto prepared = PrepareDirectory(directory); !prepared) return std::unexpected(prepared.error());
  }
  return ModelStore(std::move(root));
}

api::Result<std::vector<StoredModel>> ModelStore::List() const {
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  std::vector<StoredModel> models;
  for (const api::ModelName& name : StoredNames(*root)) {
    auto model = ModelReader(*root, name).Read();
    if (model) {
      models.push_back(std::move(*model));
    } else {
      spdlog::warn("left out: {}", model.error().message);
    }
  }
  std::ranges::stable_sort(models, std::ranges::greater(), &StoredModel::modified_at);
  return models;
}

api::Result<StoredModel> ModelStore::Find(const api::ModelName& name) const {
  if (auto checked = CheckName(name); !checked) return std::unexpected(checked.error());
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  const auto stored = StoredNameOf(*root, name);
  if (!stored) return NotFound(name);
  return ModelReader(*root, *stored).Read();
}

api::Result<StoredModel> ModelStore::Register(const NewModel& model) {
  if (auto checked = CheckName(model.name); !checked) return std::unexpected(checked.error());
  if (!model.parameters_json.empty()) {
    const auto parameters = ParseParameters(model.parameters_json);
    if (!parameters) {
      return api::Fail(api::ErrorCode::kInvalidArgument, parameters.error().message, "parameters");
    }
  }
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  const auto lock = root->Lock(kLockFile);
  if (!lock) return std::unexpected(lock.error());
  const api::ModelName name = StoredNameOf(*root, model.name).value_or(model.name);
  if (auto written = ModelWriter(*root, model).Write(name); !written) return std::unexpected(written.error());
  return ModelReader(*root, name).Read();
}

}  // namespace quire::server
