// libFuzzer: any bytes as each of the JSON texts of a stored model. What is read and written again reads the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/store/model_manifest.h"

namespace {

using namespace quire::server;

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckManifest(std::string_view text) {
  const auto manifest = ParseManifest(text);
  if (!manifest) {
    Require(manifest.error().code == quire::api::ErrorCode::kBadModel && !manifest.error().message.empty());
    return;
  }
  Require(manifest->TotalSize() >= 0);
  for (const Layer& layer : manifest->layers) {
    Require(layer.size >= 0 && BlobNameOf(layer.blob) == layer.blob);
    Require(manifest->Find(layer.media_type) != nullptr);
  }
  const std::string written = WriteManifest(*manifest);
  const auto again = ParseManifest(written);
  Require(again && WriteManifest(*again) == written);
}

void CheckConfig(std::string_view text) {
  const auto details = ParseModelConfig(text);
  if (!details) return;
  const std::string written = WriteModelConfig(*details, {});
  const auto again = ParseModelConfig(written);
  Require(again && WriteModelConfig(*again, {}) == written);
}

void CheckMessages(std::string_view text) {
  const auto messages = ParseMessages(text);
  if (!messages) return;
  const std::string written = WriteMessages(*messages);
  const auto again = ParseMessages(written);
  Require(again && WriteMessages(*again) == written);
}

void CheckParameters(std::string_view text) {
  static_cast<void>(ParseParameters(text));
  const auto merged = MergeParameters(text, R"({"seed":1,"stop":["x"]})");
  if (merged) Require(MergeParameters(*merged, "").has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckManifest(text);
  CheckConfig(text);
  CheckMessages(text);
  CheckParameters(text);
  if (const auto blob = BlobNameOf(text)) Require(blob->size() == 71 && BlobNameOf(*blob) == blob);
  return 0;
}
