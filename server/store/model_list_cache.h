// Caches models read from the store while their files are unchanged.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "server/store/model_store.h"

namespace quire::server {

// Which file lies at a path, and in what state.
class FileStamp {
 public:
  explicit FileStamp(const std::filesystem::path& path);  // links are not followed
  // A change from now on shows in another stamp: it is there, and was not changed just now.
  bool settled() const;
  bool operator==(const FileStamp& other) const;

 private:
  struct stat status_ = {};
  bool there_ = false;
};

// Any thread.
class ModelListCache {
 public:
  // Nothing when it is not known, or its manifest or weights are not those any more.
  std::optional<StoredModel> Find(const std::filesystem::path& manifest);
  // `stamp` is from before the model was read.
  void Insert(const std::filesystem::path& manifest, const FileStamp& stamp, const StoredModel& model);

 private:
  struct Entry {
    FileStamp manifest;
    FileStamp weights;
    StoredModel model;
  };
  std::mutex mutex_;
  std::map<std::filesystem::path, Entry> entries_;  // guarded by mutex_
};

}  // namespace quire::server
