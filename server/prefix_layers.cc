#include "server/prefix_layers.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <utility>

#include "server/routes/blocking.h"
#include "server/store/model_manifest.h"
#include "server/tier/prefix_archive.h"

namespace quire::server {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

api::Result<std::vector<std::string>> ImportFile(const SnapshotService::Opened& opened,
                                                 const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return api::Fail(api::ErrorCode::kNotFound, "the exported prefix cannot be read");
  PrefixImport import(*opened.tier, {.program = opened.program});
  std::string bytes(kReadBytes, '\0');
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), file.gcount() > 0) {
    const auto written = import.Write({bytes.data(), static_cast<size_t>(file.gcount())});
    if (!written) return std::unexpected(written.error());
  }
  auto imported = import.Finish();
  if (!imported) return std::unexpected(imported.error());
  return std::move(imported->files);
}

}  // namespace

Awaitable<api::Result<std::vector<std::string>>> PrefixLayers::Import(std::filesystem::path archive) {
  auto opened = service_.opened();
  if (!opened) co_return std::unexpected(opened.error());
  auto work = [opened = *std::move(opened), archive = std::move(archive)] {
    return ImportFile(opened, archive);
  };
  auto files = co_await RunBlocking(pools_.blobs, std::move(work));
  co_return files;
}

Awaitable<void> PrefixLayers::ImportOf(const StoredModel& model) {
  for (const Layer& layer : model.other_layers) {
    if (layer.media_type != kPrefixLayer || seen_.contains(layer.blob) || !service_.opened()) continue;
    seen_.insert(layer.blob);
    const std::filesystem::path path = model.weights.parent_path() / layer.blob;
    const auto files = co_await Import(path);
    if (files) {
      spdlog::info("prefix imported model={} blob={}", model.name.Display(), layer.blob);
    } else {
      spdlog::warn("prefix not imported model={} blob={} error=\"{}\"", model.name.Display(), layer.blob,
                   files.error().message);
    }
  }
}

}  // namespace quire::server
