// Caches models read from the store while their files are unchanged.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "server/store/model_store.h"

namespace quire::server {

// Which file lies at a path, and in what state.
class FileStamp {
 public:
  explicit FileStamp(const std::filesystem::path& path);  // links are not followed
  // A change from then on shows in another stamp: it is there, and was not changed just before.
  bool settled() const { return settled_; }
  bool operator==(const FileStamp& other) const;

 private:
  struct stat status_ = {};
  bool there_ = false;
  bool settled_ = false;
};

// Any thread but the I/O thread. Bounded by models and by bytes of text; the least recently used goes first.
class ModelListCache {
 public:
  // Nothing when it is not known, or its manifest or weights are not those any more. Reads no file: two calls
  // of lstat, made without the lock.
  std::optional<StoredModel> Find(const std::filesystem::path& manifest);
  // `stamp` is from before the model was read.
  void Insert(const std::filesystem::path& manifest, const FileStamp& stamp, const StoredModel& model);

 private:
  struct Entry {
    std::filesystem::path path;
    FileStamp manifest;
    FileStamp weights;
    StoredModel model;
    size_t bytes = 0;
  };
  using Entries = std::list<std::shared_ptr<const Entry>>;

  std::shared_ptr<const Entry> Recall(const std::filesystem::path& manifest);
  void Erase(std::map<std::filesystem::path, Entries::iterator>::iterator found);

  std::mutex mutex_;
  Entries entries_;                                             // last used first; guarded by mutex_
  std::map<std::filesystem::path, Entries::iterator> by_path_;  // guarded by mutex_
  size_t bytes_ = 0;                                            // of all entries; guarded by mutex_
};

}  // namespace quire::server
