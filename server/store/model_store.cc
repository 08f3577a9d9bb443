#include "server/store/model_store.h"

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

#include "api/base/sha256.h"
#include "server/store/files.h"
#include "server/store/garbage.h"
#include "server/store/layout.h"
#include "server/store/model_list_cache.h"
#include "server/store/model_manifest.h"
#include "server/store/model_text.h"
#include "server/store/staging.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

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
  return api::Fail(api::ErrorCode::kInternal, fmt::format("{}: {} cannot {}: {}", path.string(), UserName(),
                                                          right, std::generic_category().message(error)));
}

// Best effort: a directory that this user may write to but not read cannot be opened for it, and not every
// file system has directories to sync.
void SyncDirectory(const fs::path& directory) {
  const fs::path opened = directory.empty() ? fs::path(".") : directory;
  const api::FileDescriptor fd(::open(opened.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) == 0 || errno == EINVAL || errno == EROFS) return;
  spdlog::warn("not synced: {}: {}", opened.string(), std::generic_category().message(errno));
}

// Makes the directory and those above it, 0700 each, and sees to it that this user can read it.
api::Result<void> PrepareDirectory(const fs::path& path) {
  fs::path prefix;
  for (const fs::path& part : path) {
    prefix /= part;
    if (::mkdir(prefix.c_str(), 0700) == 0) {
      SyncDirectory(prefix.parent_path());
      continue;
    }
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

// Reads one model: its manifest, then every blob that is text, then a look at the weights.
class ModelReader {
 public:
  ModelReader(const StoreDirectory& root, const api::ModelName& name) : root_(root), name_(name) {}

  // kBadModel when anything is broken or missing. A model that is replaced meanwhile takes blobs with it that
  // its manifest named: then the new one is read.
  api::Result<SharedModel> Read() {
    constexpr int kTries = 16;
    auto model = ReadAll();
    for (int tried = 1; !model && tried < kTries && manifest_ != ManifestText(); ++tried) model = ReadAll();
    if (!model) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("model \"{}\" is corrupt: {}", name_.Display(), model.error().message));
    }
    return std::make_shared<const StoredModel>(*std::move(model));
  }

 private:
  // Empty when it cannot be read.
  std::string ManifestText() const {
    const auto tags = EnterModel(root_, name_, false);
    const auto text = tags ? tags->Read(name_.tag, kManifestBytesMax) : std::unexpected(tags.error());
    return text.value_or("");
  }

  api::Result<StoredModel> ReadAll() {
    manifest_.clear();
    const auto tags = EnterModel(root_, name_, false);
    if (!tags) return std::unexpected(tags.error());
    const auto status = tags->Status(name_.tag);
    if (!status) return std::unexpected(status.error());
    const auto text = tags->Read(name_.tag, kManifestBytesMax);
    if (!text) return std::unexpected(text.error());
    manifest_ = *text;
    const auto manifest = ParseManifest(*text);
    if (!manifest) return In(tags->path() / name_.tag, manifest.error());
    auto blobs = root_.Enter(kBlobs);
    if (!blobs) return std::unexpected(blobs.error());

    StoredModel model;
    model.name = name_;
    model.digest = api::Sha256Of(*text);
    model.size = manifest->TotalSize();
    model.modified_at = status->modified_at;
    if (auto read = ReadConfig(*blobs, *manifest, model); !read) return std::unexpected(read.error());
    if (auto read = FindWeights(*blobs, *manifest, model); !read) return std::unexpected(read.error());
    for (const Layer& layer : manifest->layers) {
      if (!IsText(layer)) {
        if (layer.media_type != kModelLayer) model.other_layers.push_back(layer);
        continue;
      }
      if (auto read = ReadTextLayer(*blobs, layer, model); !read) return std::unexpected(read.error());
    }
    if (auto checked = CheckText(model, api::ErrorCode::kBadModel); !checked)
      return std::unexpected(checked.error());
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
    if (weights == nullptr && !model.details.remote_host.empty()) {
      model.refusal = fmt::format("model \"{}\" runs on {}; this server runs its own models only",
                                  model.name.Display(), model.details.remote_host);
      return {};
    }
    if (weights == nullptr) return api::Fail(api::ErrorCode::kBadModel, "it has no weights");
    if (manifest.Find(kAdapterLayer) != nullptr) {
      model.refusal =
          fmt::format("model \"{}\" has an adapter, and adapters are not supported: merge it into the model",
                      model.name.Display());
    }
    const auto status = blobs.Status(weights->blob);
    if (!status) return std::unexpected(status.error());
    if (status->size != weights->size) {
      return api::Fail(api::ErrorCode::kBadModel,
                       fmt::format("{}: {} bytes, but the manifest states {}",
                                   (blobs.path() / weights->blob).string(), status->size, weights->size));
    }
    model.weights = blobs.path() / weights->blob;
    if (const Layer* draft = manifest.Find(kDraftLayer)) model.draft = blobs.path() / draft->blob;
    if (const Layer* tower = manifest.Find(kProjectorLayer)) model.projector = blobs.path() / tower->blob;
    return {};
  }

  static bool IsText(const Layer& layer) {
    constexpr std::array kTextLayers = {kTemplateLayer, kSystemLayer, kLicenseLayer, kParamsLayer,
                                        kMessagesLayer};
    return std::ranges::find(kTextLayers, layer.media_type) != kTextLayers.end();
  }

  static api::Result<void> ReadTextLayer(const StoreDirectory& blobs, const Layer& layer,
                                         StoredModel& model) {
    auto text = blobs.Read(layer.blob, kTextBlobBytesMax);
    if (!text) return std::unexpected(text.error());
    const fs::path file = blobs.path() / layer.blob;
    if (layer.media_type == kTemplateLayer) {
      model.go_template = std::move(*text);
      model.template_blob = layer.blob;
    }
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
  std::string manifest_;  // as it was read last
};

// Puts a model's blobs and, last, its manifest in place. REQUIRES: the store's lock is held.
class ModelWriter {
 public:
  ModelWriter(const StoreDirectory& root, const NewModel& model, BlobUsers& users, std::vector<BlobUse>* uses)
      : root_(root), model_(model), users_(users), uses_(uses) {}

  api::Result<void> Write(const api::ModelName& name) {
    auto blobs = root_.Enter(kBlobs, true);
    if (!blobs) return std::unexpected(blobs.error());
    if (auto added = AddWeights(*blobs); !added) return added;
    if (!model_.draft_gguf.empty()) {
      if (auto added = AddFile(*blobs, kDraftLayer, model_.draft_gguf); !added) return added;
    }
    for (const Layer& layer : model_.other_layers) {
      if (auto added = AddPresent(*blobs, layer); !added) return added;
    }
    std::vector<std::pair<std::string_view, std::string>> texts = {{kTemplateLayer, model_.go_template}};
    for (const std::string& license : model_.licenses) texts.emplace_back(kLicenseLayer, license);
    texts.emplace_back(kSystemLayer, model_.system);
    texts.emplace_back(kParamsLayer, model_.parameters_json);
    if (!model_.messages.empty()) texts.emplace_back(kMessagesLayer, WriteMessages(model_.messages));
    for (const auto& [media_type, text] : texts) {
      if (text.empty()) continue;
      auto layer = AddText(*blobs, media_type, text);
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

  // A layer whose blob must be in the store.
  api::Result<void> AddPresent(const StoreDirectory& blobs, Layer layer) {
    const auto status = blobs.Status(layer.blob);
    if (!status) return std::unexpected(status.error());
    layer.size = status->size;
    RecordUse(layer.blob, true);
    manifest_.layers.push_back(std::move(layer));
    return {};
  }

  api::Result<void> AddWeights(const StoreDirectory& blobs) {
    if (!model_.weights_blob.empty()) {
      return AddPresent(blobs, {.media_type = std::string(kModelLayer), .blob = model_.weights_blob});
    }
    return AddFile(blobs, kModelLayer, model_.gguf);
  }

  api::Result<void> AddFile(const StoreDirectory& blobs, std::string_view media_type, const fs::path& file) {
    const auto copied = blobs.CopyIn(file);
    if (!copied) return std::unexpected(copied.error());
    Layer layer{
        .media_type = std::string(media_type), .blob = "sha256-" + copied->sha256, .size = copied->size};
    const bool there = IsThere(blobs, layer.blob, layer.size);
    RecordUse(layer.blob, there);
    if (there) {
      blobs.DropTemporary();
    } else if (auto published = blobs.Publish(layer.blob); !published) {
      return published;
    }
    manifest_.layers.push_back(std::move(layer));
    return {};
  }

  api::Result<Layer> AddText(const StoreDirectory& blobs, std::string_view media_type,
                             std::string_view text) {
    Layer layer{.media_type = std::string(media_type),
                .blob = "sha256-" + api::Sha256Of(text),
                .size = static_cast<int64_t>(text.size())};
    const bool there = IsThere(blobs, layer.blob, layer.size);
    RecordUse(layer.blob, there);
    if (there) return layer;
    if (auto written = blobs.Write(layer.blob, text); !written) return std::unexpected(written.error());
    return layer;
  }

  api::Result<void> WriteManifestFile(const api::ModelName& name) {
    const auto tags = EnterModel(root_, name, true);
    if (!tags) return std::unexpected(tags.error());
    return ReplaceManifest(root_, name, *tags, WriteManifest(manifest_), users_);
  }

  void RecordUse(const std::string& blob, bool existed) {
    if (uses_ != nullptr) uses_->push_back({blob, existed});
  }

  const StoreDirectory& root_;
  const NewModel& model_;
  BlobUsers& users_;
  std::vector<BlobUse>* uses_;  // may be null
  Manifest manifest_;
};

}  // namespace

ModelStore::ModelStore(fs::path root)
    : root_(std::move(root)),
      list_cache_(std::make_shared<ModelListCache>()),
      users_(std::make_shared<BlobUsers>()) {}

api::Result<ModelStore> ModelStore::Open(fs::path root) {
  ModelStore store(std::move(root));
  if (auto prepared = store.Prepare(); !prepared) return std::unexpected(prepared.error());
  return store;
}

api::Result<void> ModelStore::Prepare() const {
  for (const fs::path& directory : {root_, root_ / kManifests, root_ / kBlobs}) {
    if (auto prepared = PrepareDirectory(directory); !prepared) return prepared;
  }
  // A start that was killed has made them, too, and has not synced them.
  for (const fs::path& above : {root_.parent_path(), root_}) SyncDirectory(above);
  const auto opened = StoreDirectory::OpenRoot(root_ / kBlobs);
  if (!opened) return std::unexpected(opened.error());
  Staging::RemoveAbandoned(*opened);
  return {};
}

fs::path ModelStore::ManifestPath(const api::ModelName& name) const {
  return root_ / kManifests / name.host / name.name_space / name.model / name.tag;
}

// A model by the name it is stored under.
api::Result<SharedModel> ModelStore::ReadCached(const StoreDirectory& root,
                                                const api::ModelName& stored) const {
  const fs::path manifest = ManifestPath(stored);
  if (auto found = list_cache_->Find(manifest)) return found;
  const FileStamp before(manifest);
  auto model = ModelReader(root, stored).Read();
  if (!model) return model;
  return list_cache_->Insert(manifest, before, *std::move(model));
}

api::Result<std::vector<SharedModel>> ModelStore::List() const {
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  std::vector<SharedModel> models;
  for (const api::ModelName& name : StoredNames(*root)) {
    auto model = ReadCached(*root, name);
    if (model) {
      models.push_back(std::move(*model));
    } else {
      spdlog::warn("skipped: {}", model.error().message);
    }
  }
  const auto changed_at = [](const SharedModel& model) { return model->modified_at; };
  std::ranges::stable_sort(models, std::ranges::greater(), changed_at);
  return models;
}

SharedModel ModelStore::FindCached(const api::ModelName& name) const {
  if (!CheckName(name)) return nullptr;
  return list_cache_->Find(ManifestPath(name));
}

api::Result<SharedModel> ModelStore::Find(const api::ModelName& name) const {
  if (auto checked = CheckName(name); !checked) return std::unexpected(checked.error());
  if (auto found = FindCached(name)) return found;
  const auto root = StoreDirectory::OpenRoot(root_);
  if (!root) return std::unexpected(root.error());
  const auto stored = StoredNameOf(*root, name);
  if (!stored) return ModelNotFound(name);
  return ReadCached(*root, *stored);
}

api::Result<SharedModel> ModelStore::Register(const NewModel& model, std::vector<BlobUse>* uses) {
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
  if (auto written = ModelWriter(*root, model, *users_, uses).Write(name); !written)
    return std::unexpected(written.error());
  return ModelReader(*root, name).Read();
}

}  // namespace quire::server
