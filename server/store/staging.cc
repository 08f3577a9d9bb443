#include "server/store/staging.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "api/base/random_id.h"

namespace quire::server {
namespace {

void RemoveWith(const StoreDirectory& blobs, const std::string& name, const StoreDirectory& directory) {
  for (const auto& names : {directory.List(), directory.ListHidden()}) {
    if (!names) continue;
    for (const std::string& file : *names) {
      if (auto removed = directory.Remove(file); !removed)
        spdlog::warn("not removed: {}", removed.error().message);
    }
  }
  if (auto removed = blobs.RemoveDirectory(name); !removed)
    spdlog::warn("not removed: {}", removed.error().message);
}

}  // namespace

api::Result<Staging> Staging::Make(const StoreDirectory& blobs) {
  const std::string name = api::RandomId(kPrefix);
  auto mine = StoreDirectory::OpenRoot(blobs.path());
  if (!mine) return std::unexpected(mine.error());
  auto directory = blobs.Enter(name, true);
  if (!directory) return std::unexpected(directory.error());
  if (!directory->TryLock()) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("{}: cannot be locked", directory->path().string()));
  }
  return Staging(std::move(*mine), name, std::move(*directory));
}

void Staging::RemoveAbandoned(const StoreDirectory& blobs) {
  const auto names = blobs.ListHidden();
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kPrefix)) continue;
    const auto directory = blobs.Enter(name);
    if (directory && directory->TryLock()) RemoveWith(blobs, name, *directory);
  }
}

Staging::~Staging() {
  if (!name_.empty()) RemoveWith(blobs_, name_, directory_);
}

}  // namespace quire::server
