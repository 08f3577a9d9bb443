#include "server/store/model_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/json/fields.h"
#include "api/json/option_fields.h"
#include "api/json/read.h"

namespace quire::server {
namespace {

using api::Json;

constexpr std::string_view kManifestType = "application/vnd.docker.distribution.manifest.v2+json";
constexpr std::string_view kConfigType = "application/vnd.docker.container.image.v1+json";
constexpr size_t kLayersMax = 256;

std::unexpected<api::Error> Refuse(std::string reason) {
  return api::Fail(api::ErrorCode::kBadModel, std::move(reason));
}

api::Result<Json> ReadObject(std::string_view text) {
  auto value = api::ReadJson(text);
  if (!value) return Refuse(value.error().message);
  if (!value->is_object()) return Refuse("not a JSON object");
  return value;
}

// REQUIRES: error holds one.
std::unexpected<api::Error> Refuse(const api::FirstError& error) { return Refuse(error->message); }

Layer ReadLayer(const Json& object, const std::string& path, api::FirstError& error) {
  api::Fields fields(object, path, error);
  Layer layer;
  std::string digest;
  fields.Get("mediaType", layer.media_type);
  fields.Get("digest", digest);
  fields.Get("size", layer.size, 0);
  const auto blob = BlobNameOf(digest);
  if (!blob) {
    fields.Reject("digest", "is not a SHA-256 digest");
    return layer;
  }
  layer.blob = *blob;
  return layer;
}

Json LayerJson(const Layer& layer) {
  Json json = Json::object();
  json["mediaType"] = layer.media_type;
  json["digest"] = DigestOf(layer.blob);
  json["size"] = layer.size;
  return json;
}

}  // namespace

const Layer* Manifest::Find(std::string_view media_type) const {
  const auto found = std::ranges::find(layers, media_type, &Layer::media_type);
  return found == layers.end() ? nullptr : &*found;
}

int64_t Manifest::TotalSize() const {
  int64_t total = config.size;
  for (const Layer& layer : layers) total += layer.size;
  return total;
}

std::optional<std::string> BlobNameOf(std::string_view digest) {
  constexpr std::string_view kAlgorithm = "sha256";
  constexpr size_t kHexDigits = 64;
  if (digest.size() != kAlgorithm.size() + 1 + kHexDigits || !digest.starts_with(kAlgorithm))
    return std::nullopt;
  const char separator = digest[kAlgorithm.size()];
  if (separator != ':' && separator != '-') return std::nullopt;
  const std::string_view hex = digest.substr(kAlgorithm.size() + 1);
  if (hex.find_first_not_of("0123456789abcdef") != std::string_view::npos) return std::nullopt;
  return fmt::format("{}-{}", kAlgorithm, hex);
}

std::string DigestOf(std::string blob) { return blob.replace(blob.find('-'), 1, ":"); }

api::Result<Manifest> ParseManifest(std::string_view text) {
  const auto json = ReadObject(text);
  if (!json) return std::unexpected(json.error());
  api::FirstError error;
  api::Fields fields(*json, "", error);
  int32_t schema = 0;
  fields.Get("schemaVersion", schema);
  const Json* config = fields.FindObject("config");
  const Json* layers = fields.FindArray("layers");
  if (error) return Refuse(error);
  if (schema != 2) return Refuse(fmt::format("schemaVersion is {}, not 2", schema));
  if (config == nullptr || layers == nullptr) return Refuse("no config or no layers");
  if (layers->size() > kLayersMax) return Refuse(fmt::format("{} layers", layers->size()));

  Manifest manifest;
  manifest.config = ReadLayer(*config, "config", error);
  for (size_t i = 0; i < layers->size(); ++i) {
    manifest.layers.push_back(ReadLayer((*layers)[i], fmt::format("layers[{}]", i), error));
  }
  if (error) return Refuse(error);
  int64_t total = manifest.config.size;
  for (const Layer& layer : manifest.layers) {
    if (__builtin_add_overflow(total, layer.size, &total)) return Refuse("layers exceed 2^63 bytes");
  }
  return manifest;
}

std::string WriteManifest(const Manifest& manifest) {
  Json layers = Json::array();
  for (const Layer& layer : manifest.layers) layers.push_back(LayerJson(layer));
  Json json = Json::object();
  json["schemaVersion"] = 2;
  json["mediaType"] = kManifestType;
  json["config"] = LayerJson(
      {.media_type = std::string(kConfigType), .blob = manifest.config.blob, .size = manifest.config.size});
  json["layers"] = std::move(layers);
  return api::DumpJson(json);
}

api::Result<ModelDetails> ParseModelConfig(std::string_view text) {
  const auto json = ReadObject(text);
  if (!json) return std::unexpected(json.error());
  api::FirstError error;
  api::Fields fields(*json, "", error);
  ModelDetails details;
  fields.Get("model_format", details.format);
  fields.Get("model_family", details.family);
  fields.Get("model_type", details.parameter_size);
  fields.Get("file_type", details.quantization_level);
  fields.Get("requires", details.requires_version);
  fields.Get("renderer", details.renderer);
  fields.Get("parser", details.parser);
  fields.Get("remote_host", details.remote_host);
  if (const Json* families = fields.FindArray("model_families")) {
    for (const Json& family : *families) {
      if (!family.is_string()) return Refuse("model_families is not a list of strings");
      details.families.push_back(family.get<std::string>());
    }
  }
  if (error) return Refuse(error);
  return details;
}

std::string WriteModelConfig(const ModelDetails& details, const std::vector<Layer>& layers) {
  Json digests = Json::array();
  for (const Layer& layer : layers) digests.push_back(DigestOf(layer.blob));
  Json rootfs = Json::object();
  rootfs["type"] = "layers";
  rootfs["diff_ids"] = std::move(digests);
  Json json = Json::object();
  json["model_format"] = details.format;
  json["model_family"] = details.family;
  json["model_families"] = details.families;
  json["model_type"] = details.parameter_size;
  json["file_type"] = details.quantization_level;
  for (const auto& [key, value] : {std::pair{"requires", &details.requires_version},
                                   {"renderer", &details.renderer},
                                   {"parser", &details.parser}}) {
    if (!value->empty()) json[key] = *value;
  }
  json["architecture"] = "amd64";
  json["os"] = "linux";
  json["rootfs"] = std::move(rootfs);
  return api::DumpJson(json);
}

api::Result<std::vector<api::Message>> ParseMessages(std::string_view text) {
  const auto json = api::ReadJson(text);
  if (!json) return Refuse(json.error().message);
  if (json->is_null()) return std::vector<api::Message>();
  if (!json->is_array()) return Refuse("not a JSON array");
  api::FirstError error;
  std::vector<api::Message> messages;
  for (size_t i = 0; i < json->size(); ++i) {
    api::Fields fields((*json)[i], fmt::format("messages[{}]", i), error);
    api::Message& message = messages.emplace_back();
    fields.Get("role", message.role);
    fields.Get("content", message.content);
    fields.Get("thinking", message.thinking);
    if (error) return Refuse(error);
  }
  return messages;
}

std::string WriteMessages(const std::vector<api::Message>& messages) {
  Json list = Json::array();
  for (const api::Message& message : messages) {
    Json object = {{"role", message.role}, {"content", message.content}};
    if (!message.thinking.empty()) object["thinking"] = message.thinking;
    list.push_back(std::move(object));
  }
  return api::DumpJson(list);
}

api::Result<std::string> MergeParameters(std::string_view base, std::string_view top) {
  if (top.empty()) return std::string(base);
  const auto over = ReadObject(top);
  if (!over || base.empty()) return over ? api::Result<std::string>(top) : std::unexpected(over.error());
  const auto under = ReadObject(base);
  if (!under) return std::unexpected(under.error());
  Json merged = Json::object();
  for (const auto& [key, value] : under->get_ref<const Json::object_t&>()) {
    if (!over->contains(key)) merged[key] = value;
  }
  for (const auto& [key, value] : over->get_ref<const Json::object_t&>()) merged[key] = value;
  return api::DumpJson(merged);
}

api::Result<api::Options> ParseParameters(std::string_view text) {
  auto parsed = api::ParseOptions(text);
  if (!parsed) return Refuse(parsed.error().message);
  return std::move(parsed->options);
}

}  // namespace quire::server
