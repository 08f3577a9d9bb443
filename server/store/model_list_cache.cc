#include "server/store/model_list_cache.h"

#include <ctime>

namespace quire::server {
namespace {

constexpr size_t kEntriesMax = 64;
constexpr size_t kTextBytesMax = size_t{1} << 20;  // of one model; larger ones are not kept
constexpr time_t kSettledSeconds = 2;              // coarser than any file system's clock

bool Same(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

size_t TextBytes(const StoredModel& model) {
  size_t bytes = model.go_template.size() + model.system.size() + model.parameters_json.size();
  for (const std::string& license : model.licenses) bytes += license.size();
  for (const api::Message& message : model.messages) bytes += message.content.size();
  return bytes;
}

}  // namespace

FileStamp::FileStamp(const std::filesystem::path& path) { there_ = ::lstat(path.c_str(), &status_) == 0; }

bool FileStamp::settled() const {
  return there_ && status_.st_mtim.tv_sec + kSettledSeconds < std::time(nullptr);
}

bool FileStamp::operator==(const FileStamp& other) const {
  return there_ && other.there_ && status_.st_dev == other.status_.st_dev &&
         status_.st_ino == other.status_.st_ino && status_.st_size == other.status_.st_size &&
         Same(status_.st_mtim, other.status_.st_mtim) && Same(status_.st_ctim, other.status_.st_ctim);
}

std::optional<StoredModel> ModelListCache::Find(const std::filesystem::path& manifest) {
  const FileStamp stamp(manifest);
  const std::scoped_lock lock(mutex_);
  const auto found = entries_.find(manifest);
  if (found == entries_.end()) return std::nullopt;
  if (found->second.manifest == stamp && found->second.weights == FileStamp(found->second.model.weights)) {
    return found->second.model;
  }
  entries_.erase(found);
  return std::nullopt;
}

void ModelListCache::Insert(const std::filesystem::path& manifest, const FileStamp& stamp,
                            const StoredModel& model) {
  const FileStamp weights(model.weights);
  if (!stamp.settled() || TextBytes(model) > kTextBytesMax) return;
  const std::scoped_lock lock(mutex_);
  if (entries_.size() >= kEntriesMax) entries_.clear();
  entries_.insert_or_assign(manifest, Entry{stamp, weights, model});
}

}  // namespace quire::server
