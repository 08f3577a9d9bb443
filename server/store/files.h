// Files and directories below one root, reached component by component without following a symlink: whatever
// a store holds, nothing outside it is read or written. The root itself may be reached through symlinks.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"

namespace quire::server {

// An error of the store's files: what a client hears of it, and what the system said.
struct StoreError : api::Error {
  StoreError() = default;
  StoreError(api::Error error, int system = 0) : api::Error(std::move(error)), system_error(system) {}

  int system_error = 0;  // errno; 0: no call of the system failed
};
template <class T>
using StoreResult = std::expected<T, StoreError>;

// The disk, the quota or the limit of a file's size has no room for more.
bool IsOutOfRoom(const StoreError& error);

struct FileStatus {
  int64_t size = 0;
  std::chrono::system_clock::time_point modified_at;
};

// An open directory; any thread but the I/O thread. Errors: kNotFound when the entry does not exist,
// kInternal for everything else the system refuses; messages name path and reason. REQUIRES: `name` is one
// path component other than "." and "..".
class StoreDirectory {
 public:
  // Names beginning with this are ours while they are written; List() leaves them out.
  static constexpr std::string_view kTemporaryName = ".quire-new";

  static StoreResult<StoreDirectory> OpenRoot(const std::filesystem::path& root);

  // With `create` it is created (0700) when it is missing; its entry is on disk when this returns, also when
  // another call or process has made it and failed to sync it.
  StoreResult<StoreDirectory> Enter(const std::string& name, bool create = false) const;

  // Entries that do not begin with a dot, sorted; or those that do, but "." and "..".
  StoreResult<std::vector<std::string>> List() const;
  StoreResult<std::vector<std::string>> ListHidden() const;

  // A regular file.
  StoreResult<FileStatus> Status(const std::string& name) const;
  // kInternal when it has more than `bytes_max` bytes.
  StoreResult<std::string> Read(const std::string& name, int64_t bytes_max) const;
  // Appears whole or not at all, also after a crash. REQUIRES: the caller holds the store's lock.
  StoreResult<void> Write(const std::string& name, std::string_view bytes) const;

  // A new file to write to; kInternal when there is one. Appears at once: for directories nobody else looks
  // into.
  StoreResult<api::FileDescriptor> Create(const std::string& name) const;
  // What has changed in the directory is on disk when this returns.
  StoreResult<void> Sync() const;
  // Takes a file (an empty directory) away, also after a crash.
  StoreResult<void> Remove(const std::string& name) const;
  StoreResult<void> RemoveDirectory(const std::string& name) const;
  // Puts a file of this directory, on disk by then, into another of the same file system, over what is there.
  StoreResult<void> Move(const std::string& name, const StoreDirectory& to,
                         const std::string& new_name) const;
  // A second name of a file, in another directory of the same file system, where there is none yet.
  StoreResult<void> Link(const std::string& name, const StoreDirectory& to,
                         const std::string& new_name) const;

  // Creates an empty file; nothing happens when it is there. Needs no lock.
  StoreResult<void> Mark(const std::string& name) const;

  struct Copied {
    std::string sha256;
    int64_t size = 0;
  };
  // The digest of a file, which is on disk when this returns. kInternal when not a regular file.
  StoreResult<Copied> Digest(const std::string& name) const;
  // Copies a file from anywhere into kTemporaryName, on disk when this returns.
  // REQUIRES: the caller holds the store's lock. Errors name `source`: kNotFound, kInvalidArgument when it is
  // not a regular file.
  StoreResult<Copied> CopyIn(const std::filesystem::path& source) const;
  // Gives kTemporaryName its final name, or drops it.
  StoreResult<void> Publish(const std::string& name) const;
  void DropTemporary() const;

  // Held until the descriptor goes; waits for other holders, of any process, for at most a minute: then
  // kUnavailable. Created when missing.
  StoreResult<api::FileDescriptor> Lock(const std::string& name) const;
  // Takes the lock on the directory itself, held until this object goes. False: someone else has it.
  bool TryLock() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  StoreDirectory(std::filesystem::path path, api::FileDescriptor fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::unexpected<StoreError> Failure(std::string_view name, int error) const;
  StoreResult<api::FileDescriptor> CreateTemporary() const;
  StoreResult<std::vector<std::string>> ListAll() const;
  StoreResult<void> Unlink(const std::string& name, int flags) const;

  std::filesystem::path path_;  // for messages
  api::FileDescriptor fd_;
};

}  // namespace quire::server
