#include "server/store/model_list_cache.h"

#include <ctime>
#include <tuple>
#include <utility>

#include "api/base/io_thread.h"
#include "server/store/model_text.h"

namespace quire::server {
namespace {

constexpr size_t kEntriesMax = 10'000;
constexpr size_t kBytesMax = size_t{64} << 20;      // of all models
constexpr size_t kModelBytesMax = size_t{8} << 20;  // of one; larger ones are read each time
constexpr time_t kSettledSeconds = 2;               // coarser than any file system's clock

bool Same(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

bool Before(const timespec& a, const timespec& b) {
  return std::tie(a.tv_sec, a.tv_nsec) < std::tie(b.tv_sec, b.tv_nsec);
}

}  // namespace

FileStamp::FileStamp(const std::filesystem::path& path) {
  api::AssertMayBlock();
  timespec now{};  // of the clock that file systems take times from
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  there_ = ::lstat(path.c_str(), &status_) == 0;
  // A file can be given an old time of modification, but not an old time of change.
  settled_ = there_ && status_.st_mtim.tv_sec + kSettledSeconds < now.tv_sec && Before(status_.st_ctim, now);
}

bool FileStamp::operator==(const FileStamp& other) const {
  return there_ && other.there_ && status_.st_dev == other.status_.st_dev &&
         status_.st_ino == other.status_.st_ino && status_.st_size == other.status_.st_size &&
         Same(status_.st_mtim, other.status_.st_mtim) && Same(status_.st_ctim, other.status_.st_ctim);
}

std::shared_ptr<const ModelListCache::Entry> ModelListCache::Recall(const std::filesystem::path& manifest) {
  const api::MutexLock lock(mutex_);
  const auto found = by_path_.find(manifest);
  if (found == by_path_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return *found->second;
}

void ModelListCache::Erase(std::map<std::filesystem::path, Entries::iterator>::iterator found) {
  bytes_ -= (*found->second)->bytes;
  entries_.erase(found->second);
  by_path_.erase(found);
}

SharedModel ModelListCache::Find(const std::filesystem::path& manifest) {
  const std::shared_ptr<const Entry> entry = Recall(manifest);
  if (entry == nullptr || !entry->manifest.settled()) return nullptr;
  if (entry->manifest == FileStamp(manifest) && entry->weights == FileStamp(entry->model->weights)) {
    return entry->model;
  }
  const api::MutexLock lock(mutex_);
  const auto found = by_path_.find(manifest);
  if (found != by_path_.end() && *found->second == entry) Erase(found);
  return nullptr;
}

// The digest covers all that was read: a manifest names blobs by their content.
SharedModel ModelListCache::Insert(const std::filesystem::path& manifest, const FileStamp& stamp,
                                   SharedModel model) {
  const size_t bytes = sizeof(Entry) + sizeof(StoredModel) + TextBytes(*model);
  if (bytes > kModelBytesMax) return model;
  const FileStamp weights(model->weights);
  const api::MutexLock lock(mutex_);
  if (const auto known = by_path_.find(manifest); known != by_path_.end()) {
    const SharedModel& before = (*known->second)->model;
    if (before->digest == model->digest && before->modified_at == model->modified_at) model = before;
    Erase(known);
  }
  entries_.push_front(std::make_shared<const Entry>(Entry{manifest, stamp, weights, model, bytes}));
  by_path_.emplace(manifest, entries_.begin());
  bytes_ += bytes;
  while (entries_.size() > kEntriesMax || bytes_ > kBytesMax) Erase(by_path_.find(entries_.back()->path));
  return model;
}

}  // namespace quire::server
