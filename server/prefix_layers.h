// Prefixes that models come with (the layer application/vnd.quire.image.prefix): taken into the tier before the first
// answer. Who made the model has made them, and vouches for its own weights only: prefixes of others are refused, and so
// are those of API keys that have not asked for them. I/O thread only.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "api/base/error.h"
#include "server/http/awaitable.h"
#include "server/routes/work_pools.h"
#include "server/store/model_store.h"
#include "server/tier/prefix_archive.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

class PrefixLayers {
 public:
  // Both outlive it.
  PrefixLayers(const SnapshotService& service, WorkPools& pools) : service_(service), pools_(pools) {}

  // kUnavailable: the folder is still being read. Other errors say what is wrong with the archive.
  Awaitable<api::Result<void>> Import(std::filesystem::path archive, PrefixImport::OfModel of_model);

  // Those of a model, each once, for a client of this tenant (api::Client). A failure is a line in the log: the model
  // serves without.
  Awaitable<void> ImportOf(const StoredModel& model, std::string tenant);

 private:
  struct Outcome {
    api::Result<void> result;
    std::string other_owner = {};  // PrefixImport::other_owner()
  };
  static Outcome ReadArchive(const SnapshotService::Opened& opened, const std::filesystem::path& path,
                             PrefixImport::OfModel of_model);
  Awaitable<Outcome> ImportArchive(std::filesystem::path archive, PrefixImport::OfModel of_model);

  const SnapshotService& service_;
  WorkPools& pools_;
  // Weights, all layers and this one -> the tenant whose request takes the rest in; nothing: it is done.
  std::map<std::array<std::string, 3>, std::optional<std::string>> seen_;
};

}  // namespace quire::server
