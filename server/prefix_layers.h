// Prefixes that models come with (the layer application/vnd.quire.image.prefix): taken into the tier before the first
// answer. I/O thread only.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/http/awaitable.h"
#include "server/routes/work_pools.h"
#include "server/store/model_store.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {

class PrefixLayers {
 public:
  // Both outlive it.
  PrefixLayers(const SnapshotService& service, WorkPools& pools) : service_(service), pools_(pools) {}

  // The value: what files the prefixes belong to. kUnavailable: the folder is still being read. Errors say what is wrong
  // with the archive.
  Awaitable<api::Result<std::vector<std::string>>> Import(std::filesystem::path archive);

  // Those of a model, each once. A failure is a line in the log: the model serves without.
  Awaitable<void> ImportOf(const StoredModel& model);

 private:
  const SnapshotService& service_;
  WorkPools& pools_;
  std::set<std::string> seen_;  // blobs
};

}  // namespace quire::server
