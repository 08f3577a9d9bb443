// The JSON of a stored model: its manifest (OCI image manifest) and its config blob. Text in, text out; no
// files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/request.h"
#include "server/store/model_store.h"

namespace quire::server {

inline constexpr std::string_view kModelLayer = "application/vnd.ollama.image.model";
inline constexpr std::string_view kDraftLayer = "application/vnd.ollama.image.draft";
inline constexpr std::string_view kAdapterLayer = "application/vnd.ollama.image.adapter";
inline constexpr std::string_view kTemplateLayer = "application/vnd.ollama.image.template";
inline constexpr std::string_view kSystemLayer = "application/vnd.ollama.image.system";
inline constexpr std::string_view kParamsLayer = "application/vnd.ollama.image.params";
inline constexpr std::string_view kLicenseLayer = "application/vnd.ollama.image.license";
inline constexpr std::string_view kMessagesLayer = "application/vnd.ollama.image.messages";
inline constexpr std::string_view kProjectorLayer = "application/vnd.ollama.image.projector";
// The files of a hub that a model was made of: lines of "HASH PATH".
inline constexpr std::string_view kSourceLayer = "application/vnd.quire.image.source";

struct Manifest {
  Layer config;
  std::vector<Layer> layers;

  // The first layer of this kind, or null.
  const Layer* Find(std::string_view media_type) const;
  // Bytes of all layers and the config.
  int64_t TotalSize() const;
};

// "sha256-<hex>" of "sha256:<hex>" or "sha256-<hex>"; nothing for anything but exactly 64 lower-case hex
// digits.
std::optional<std::string> BlobNameOf(std::string_view digest);
// "sha256:<hex>" of "sha256-<hex>".
std::string DigestOf(std::string blob);

// All errors are kBadModel and say what is wrong, not where: the caller knows the file.
api::Result<Manifest> ParseManifest(std::string_view text);
std::string WriteManifest(const Manifest& manifest);

api::Result<ModelDetails> ParseModelConfig(std::string_view text);
// `layers`: what rootfs.diff_ids lists.
std::string WriteModelConfig(const ModelDetails& details, const std::vector<Layer>& layers);

api::Result<std::vector<api::Message>> ParseMessages(std::string_view text);
std::string WriteMessages(const std::vector<api::Message>& messages);
// The options of a params layer.
api::Result<api::Options> ParseParameters(std::string_view text);
// The params layer of a model made of another: what `top` says goes over `base`. Both are objects, or empty.
api::Result<std::string> MergeParameters(std::string_view base, std::string_view top);

}  // namespace quire::server
