#include "server/store/staging.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "api/base/random_id.h"

namespace quire::server {
namespace {

constexpr int kAttempts = 16;
// Looks at those of others by one Make(): hundreds of uploads that begin at once would else each look at all
// of them.
constexpr size_t kLooksMax = 16;

// Locked, and still there: a lock is also given on a directory that has just been removed.
bool Own(const StoreDirectory& folder, const std::string& name, const StoreDirectory& directory) {
  return directory.TryLock() && folder.Enter(name);
}

void RemoveWith(const StoreDirectory& folder, const std::string& name, const StoreDirectory& directory) {
  for (const auto& names : {directory.List(), directory.ListHidden()}) {
    if (!names) continue;
    for (const std::string& file : *names) {
      if (auto removed = directory.Remove(file); !removed)
        spdlog::warn("not removed: {}", removed.error().message);
    }
  }
  if (auto removed = folder.RemoveDirectory(name); !removed)
    spdlog::warn("not removed: {}", removed.error().message);
}

std::vector<std::string> NamesIn(const StoreDirectory& folder) {
  auto names = folder.ListHidden();
  if (!names) return {};
  std::erase_if(*names, [](const std::string& name) { return !name.starts_with(Staging::kPrefix); });
  return *std::move(names);
}

void RemoveAbandonedOf(const StoreDirectory& folder, std::span<const std::string> names) {
  for (const std::string& name : names) {
    const auto directory = folder.Enter(name);
    if (directory && Own(folder, name, *directory)) RemoveWith(folder, name, *directory);
  }
}

// A few, from where the new name belongs on: as that is random, each one has its turn.
void RemoveSomeAbandonedIn(const StoreDirectory& folder, const std::string& new_name) {
  std::vector<std::string> names = NamesIn(folder);
  std::ranges::rotate(names, std::ranges::lower_bound(names, new_name));
  RemoveAbandonedOf(folder, std::span(names).first(std::min(names.size(), kLooksMax)));
}

}  // namespace

api::Result<Staging> Staging::Make(const StoreDirectory& blobs) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // A program that shares the store, or another thread or process, may take either for abandoned.
    auto folder = blobs.Enter(std::string(kFolder));  // without syncing blobs/
    if (!folder) folder = blobs.Enter(std::string(kFolder), true);
    if (!folder && folder.error().code != api::ErrorCode::kNotFound) return std::unexpected(folder.error());
    if (!folder) continue;
    const std::string name = api::RandomId(kPrefix);
    if (attempt == 0) RemoveSomeAbandonedIn(*folder, name);
    auto directory = folder->Enter(name, true);
    if (!directory && directory.error().code != api::ErrorCode::kNotFound)
      return std::unexpected(directory.error());
    if (directory && Own(*folder, name, *directory))
      return Staging(*std::move(folder), name, *std::move(directory));
  }
  return api::Fail(api::ErrorCode::kInternal,
                   fmt::format("{}: a directory there cannot be locked", blobs.path().string()));
}

void Staging::RemoveAbandoned(const StoreDirectory& blobs) {
  RemoveAbandonedOf(blobs, NamesIn(blobs));
  if (const auto folder = blobs.Enter(std::string(kFolder))) RemoveAbandonedOf(*folder, NamesIn(*folder));
}

Staging::~Staging() {
  if (!name_.empty()) RemoveWith(folder_, name_, directory_);
}

}  // namespace quire::server
