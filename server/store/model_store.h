// Models on disk, exactly as Ollama keeps them: manifests/<host>/<namespace>/<model>/<tag> (an OCI manifest
// as JSON) and blobs/sha256-<64 hex>. A store made by Ollama is used as it is.
//
// Every call reads or writes files and may block: call from a worker thread, never from the I/O thread. Calls
// may run at once from several threads; a manifest is replaced by rename, so a reader sees the old or the new
// one.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/model_name.h"
#include "api/base/request.h"
#include "api/ipc/messages.h"
#include "server/store/blob_upload.h"
#include "server/store/blob_users.h"
#include "server/store/staging.h"

namespace quire::server {

// From the manifest's config blob; what /api/tags prints under "details".
struct ModelDetails {
  std::string format = "gguf";
  std::string family;
  std::vector<std::string> families;
  std::string parameter_size;              // "5.3M"
  std::string quantization_level;          // "F16"
  std::string requires_version = {};       // "0.14.0": what the model's maker says it needs, or empty
  std::string renderer = {}, parser = {};  // Ollama's names of what it has built in for the model, or empty
  std::string remote_host = {};            // "https://ollama.com": the model runs there; empty: here
};

// One file below blobs/ as a manifest names it.
struct Layer {
  std::string media_type;
  std::string blob;  // "sha256-<64 hex>": its file name below blobs/
  int64_t size = 0;  // bytes
};

struct StoredModel {
  api::ModelName name;
  std::string digest;  // sha256 of the manifest, 64 hex characters
  int64_t size = 0;    // bytes of all layers and the config
  std::chrono::system_clock::time_point modified_at;
  ModelDetails details;
  std::filesystem::path weights;    // the model layer's blob
  std::filesystem::path draft;      // the draft layer's, or empty
  std::filesystem::path projector;  // the projector layer's: its vision tower, or empty
  std::string template_blob;        // the template layer's blob, or empty
  std::string go_template;          // application/vnd.ollama.image.template layer, or empty
  std::string system;
  std::vector<std::string> licenses;
  api::Options parameters;      // params layer, checked
  std::string parameters_json;  // the same as stored, for /api/show
  std::vector<api::Message> messages;
  std::vector<Layer>
      other_layers;  // of kinds that are not read here (projectors): kept when a model is made of it
  // Why it is listed and cannot be used: it has an adapter, or runs elsewhere. Empty: it can. A model that
  // runs elsewhere has no `weights`.
  std::string refusal = {};

  // The template that overrides the weights' own chat template: models with a renderer have a
  // template that says nothing.
  std::string_view TemplateInUse() const {
    return details.renderer.empty() ? std::string_view(go_template) : std::string_view();
  }
  api::ipc::PromptNames PromptNames() const { return {details.renderer, details.parser}; }
};
// As it was read. All requests of a model have one: it has up to 4 MiB of text, and many wait at a time.
using SharedModel = std::shared_ptr<const StoredModel>;

// The parts of a model.
struct NewModel {
  api::ModelName name;
  std::filesystem::path gguf;             // a file that is copied into the store; or
  std::string weights_blob;               // "sha256-<64 hex>" of it, which goes first when not empty
  std::filesystem::path draft_gguf = {};  // a draft model to be copied likewise, unless empty
  ModelDetails details;
  std::string go_template;
  std::string parameters_json;  // object, or empty
  std::vector<std::string> licenses;
  std::string system;
  std::vector<api::Message> messages;
  std::vector<Layer> other_layers;
};

// A blob of a model that was entered, and whether the store had it already.
struct BlobUse {
  std::string blob;
  bool existed = false;
};

struct DeletedModel {
  std::string digest;   // sha256 of its manifest, 64 hex characters; empty when it could not be read
  bool shared = false;  // another name has the same manifest
};

class ModelListCache;

class ModelStore {
 public:
  // Creates the directories (0700 for what it creates) when they are missing. The error names the path, the
  // user and the missing right.
  static api::Result<ModelStore> Open(std::filesystem::path root);

  // A store that was not looked at yet; Prepare() comes before every other call.
  static ModelStore At(std::filesystem::path root) { return ModelStore(std::move(root)); }
  // What Open() does.
  api::Result<void> Prepare() const;

  // All models, newest first. A broken manifest is omitted and logged; the others are listed.
  api::Result<std::vector<SharedModel>> List() const;
  // kNotFound `model 'x' not found` when there is none; kBadModel when its manifest or a blob is broken or
  // missing. The result is cached, and read again once the files of the manifest or the weights change.
  api::Result<SharedModel> Find(const api::ModelName& name) const;
  // The same as far as no file must be read for it; null otherwise.
  SharedModel FindCached(const api::ModelName& name) const;
  // Copies (or hard-links) the file into blobs/ under its digest and writes the manifest last, both by
  // rename: a crash at any point leaves a usable store.
  // Every use of a blob is added to `uses` unless that is null.
  api::Result<SharedModel> Register(const NewModel& model, std::vector<BlobUse>* uses = nullptr);
  // Gives the model another name, in the place of what has it. kNotFound when there is no such model.
  api::Result<void> Copy(const api::ModelName& from, const api::ModelName& to);
  // Takes the name away, then the blobs that no other model uses; also of a broken model. A crash in between
  // leaves blobs without a model, which harms nobody.
  api::Result<DeletedModel> Delete(const api::ModelName& name);
  // Takes away those of these blobs that no model names; none while a manifest cannot be read.
  void RemoveUnnamed(const std::vector<std::string>& blobs) const;
  // The same for all blobs that nobody has written to for a week: what crashed and failed requests left.
  void RemoveOldUnnamed() const;

  // Blobs by name ("sha256-<64 hex>"). One that is there stays for those of its users() who said so before
  // the look.
  bool HasBlob(const std::string& blob) const;
  int64_t BlobSize(const std::string& blob) const;  // bytes; 0 when there is none
  std::filesystem::path BlobPath(const std::string& blob) const;
  // Bytes go in with BlobUpload::Append; FinishUpload() checks and publishes them.
  api::Result<BlobUpload> StartUpload() const;
  api::Result<void> FinishUpload(BlobUpload& upload, const std::string& blob) const;
  // A directory for files that are to become blobs, and one of them as a blob; the value is the blob's name.
  api::Result<Staging> MakeStaging() const;
  // The lease has it.
  api::Result<std::string> Adopt(const Staging& staging, const std::string& file,
                                 BlobUsers::Lease& lease) const;
  // A blob under another name in the directory.
  api::Result<void> Lend(const std::string& blob, const Staging& staging, const std::string& file) const;

  // Shared by all copies of this object.
  BlobUsers& users() const { return *users_; }
  const std::filesystem::path& root() const { return root_; }

 private:
  explicit ModelStore(std::filesystem::path root);
  std::filesystem::path ManifestPath(const api::ModelName& name) const;
  api::Result<SharedModel> ReadCached(const StoreDirectory& root, const api::ModelName& stored) const;
  std::filesystem::path root_;
  std::shared_ptr<ModelListCache> list_cache_;
  std::shared_ptr<BlobUsers> users_;
};

}  // namespace quire::server
