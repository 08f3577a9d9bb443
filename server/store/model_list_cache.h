// Caches models read from the store while their files are unchanged.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <list>
#include <map>
#include <memory>

#include "api/base/mutex.h"
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
  // Null when it is not known, its manifest was not settled, or its manifest or weights have changed. Reads
  // no file: two calls of lstat, made without the lock.
  SharedModel Find(const std::filesystem::path& manifest);
  // `stamp` is from before the model was read. The result is the model as it was inserted last where it has
  // not changed, so that all who read it at a time when its files are not settled have one.
  SharedModel Insert(const std::filesystem::path& manifest, const FileStamp& stamp, SharedModel model);

 private:
  struct Entry {
    std::filesystem::path path;
    FileStamp manifest;
    FileStamp weights;
    SharedModel model;
    size_t bytes = 0;
  };
  using Entries = std::list<std::shared_ptr<const Entry>>;

  std::shared_ptr<const Entry> Recall(const std::filesystem::path& manifest);
  void Erase(std::map<std::filesystem::path, Entries::iterator>::iterator found) REQUIRES(mutex_);

  api::Mutex mutex_;
  Entries entries_ GUARDED_BY(mutex_);  // last used first
  std::map<std::filesystem::path, Entries::iterator> by_path_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;  // of all entries
};

}  // namespace quire::server
