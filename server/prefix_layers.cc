#include "server/prefix_layers.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <utility>

#include "api/base/io_thread.h"
#include "api/base/stop_request.h"
#include "server/routes/blocking.h"
#include "server/store/model_manifest.h"

namespace quire::server {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

}  // namespace

PrefixLayers::Outcome PrefixLayers::ReadArchive(const SnapshotService::Opened& opened,
                                                const std::filesystem::path& path,
                                                PrefixImport::OfModel of_model) {
  api::AssertMayBlock();
  std::ifstream file(path, std::ios::binary);
  if (!file) return {api::Fail(api::ErrorCode::kNotFound, "the exported prefix cannot be read")};
  PrefixImport import(*opened.tier, {.program = opened.program, .of_model = std::move(of_model)});
  std::string bytes(kReadBytes, '\0');
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), file.gcount() > 0) {
    if (api::StopScope::requested())
      return {api::Fail(api::ErrorCode::kUnavailable, "the server is stopping")};
    const auto written = import.Write({bytes.data(), static_cast<size_t>(file.gcount())});
    if (!written) return {std::unexpected(written.error()), import.other_owner()};
  }
  const auto imported = import.Finish();
  if (!imported) return {std::unexpected(imported.error())};
  return {api::Result<void>()};
}

Awaitable<PrefixLayers::Outcome> PrefixLayers::ImportArchive(std::filesystem::path archive,
                                                             PrefixImport::OfModel of_model) {
  auto opened = service_.opened();
  if (!opened) co_return Outcome{std::unexpected(opened.error())};
  auto work = [opened = *std::move(opened), archive = std::move(archive), of_model = std::move(of_model)] {
    return ReadArchive(opened, archive, of_model);
  };
  auto outcome = co_await RunBlocking(pools_.blobs, std::move(work));
  co_return outcome;
}

Awaitable<api::Result<void>> PrefixLayers::Import(std::filesystem::path archive,
                                                  PrefixImport::OfModel of_model) {
  const auto outcome = co_await ImportArchive(std::move(archive), std::move(of_model));
  co_return outcome.result;
}

Awaitable<void> PrefixLayers::ImportOf(const StoredModel& model, std::string tenant) {
  const std::string weights = model.weights.filename().string();
  const std::string& layers = model.prefix_layers;
  for (const Layer& layer : model.other_layers) {
    if (layer.media_type != kPrefixLayer || !service_.opened()) continue;
    const auto [seen, is_new] = seen_.try_emplace({weights, layers, layer.blob});
    std::optional<std::string>& owner = seen->second;
    if (!is_new && owner != tenant) continue;
    owner.reset();
    const std::filesystem::path path = model.weights.parent_path() / layer.blob;
    PrefixImport::OfModel of_model{weights, layers, tenant};
    auto outcome = co_await ImportArchive(path, std::move(of_model));
    if (outcome.result) {
      spdlog::info("prefix imported model={} blob={}", model.name.Display(), layer.blob);
      continue;
    }
    if (!outcome.other_owner.empty()) owner = std::move(outcome.other_owner);
    spdlog::warn("prefix not imported model={} blob={} error=\"{}\"", model.name.Display(), layer.blob,
                 outcome.result.error().message);
  }
}

}  // namespace quire::server
