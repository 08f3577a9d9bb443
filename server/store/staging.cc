#include "server/store/staging.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <utility>

#include "api/base/random_id.h"

namespace quire::server {
namespace {

constexpr int kAttempts = 16;

// Locked, and still there: a lock is also given on a directory that has just been removed.
bool Own(const StoreDirectory& blobs, const std::string& name, const StoreDirectory& directory) {
  return directory.TryLock() && blobs.Enter(name);
}

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
  RemoveAbandoned(blobs);
  auto mine = StoreDirectory::OpenRoot(blobs.path());
  if (!mine) return std::unexpected(mine.error());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::string name = api::RandomId(kPrefix);
    // Before the lock, another thread or process may take it for abandoned.
    auto directory = blobs.Enter(name, true);
    if (!directory && directory.error().code != api::ErrorCode::kNotFound)
      return std::unexpected(directory.error());
    if (directory && Own(blobs, name, *directory))
      return Staging(std::move(*mine), name, std::move(*directory));
  }
  return api::Fail(api::ErrorCode::kInternal,
                   fmt::format("{}: a directory there cannot be locked", blobs.path().string()));
}

void Staging::RemoveAbandoned(const StoreDirectory& blobs) {
  const auto names = blobs.ListHidden();
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kPrefix)) continue;
    const auto directory = blobs.Enter(name);
    if (directory && Own(blobs, name, *directory)) RemoveWith(blobs, name, *directory);
  }
}

Staging::~Staging() {
  if (name_.empty()) return;
  try {
    RemoveWith(blobs_, name_, directory_);
  } catch (const std::exception& error) {  // no memory: the next Make() takes it away
    spdlog::warn("not removed: {}: {}", name_, error.what());
  }
}

}  // namespace quire::server
