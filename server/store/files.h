// Files and directories below one root, reached component by component without following a symlink: whatever
// a store holds, nothing outside it is read or written. The root itself may be reached through symlinks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"

namespace quire::server {

struct FileStatus {
  int64_t size = 0;
  std::chrono::system_clock::time_point modified_at;
};

// An open directory; any thread but the I/O thread. Errors: kNotFound when the entry does not exist, kInternal for everything
// else the system refuses; messages name path and reason. REQUIRES: `name` is one path component other than
// "." and "..".
class StoreDirectory {
 public:
  // Names beginning with this are ours while they are written; List() leaves them out.
  static constexpr std::string_view kTemporaryName = ".quire-new";

  static api::Result<StoreDirectory> OpenRoot(const std::filesystem::path& root);

  // With `create` it is created (0700) when it is missing; its entry is on disk when this returns.
  api::Result<StoreDirectory> Enter(const std::string& name, bool create = false) const;

  // Entries that do not begin with a dot, sorted; or those that do, but "." and "..".
  api::Result<std::vector<std::string>> List() const;
  api::Result<std::vector<std::string>> ListHidden() const;

  // A regular file.
  api::Result<FileStatus> Status(const std::string& name) const;
  // kInternal when it has more than `bytes_max` bytes.
  api::Result<std::string> Read(const std::string& name, int64_t bytes_max) const;
  // Appears whole or not at all, also after a crash. REQUIRES: the caller holds the store's lock.
  api::Result<void> Write(const std::string& name, std::string_view bytes) const;

  // A new file to write to; kInternal when there is one. Appears at once: for directories nobody else looks
  // into.
  api::Result<api::FileDescriptor> Create(const std::string& name) const;
  // Takes a file (an empty directory) away, also after a crash.
  api::Result<void> Remove(const std::string& name) const;
  api::Result<void> RemoveDirectory(const std::string& name) const;
  // Puts a file of this directory, on disk by then, into another of the same file system, over what is there.
  api::Result<void> Move(const std::string& name, const StoreDirectory& to,
                         const std::string& new_name) const;
  // A second name of a file, in another directory of the same file system, where there is none yet.
  api::Result<void> Link(const std::string& name, const StoreDirectory& to,
                         const std::string& new_name) const;

  // Creates an empty file; nothing happens when it is there. Needs no lock.
  api::Result<void> Mark(const std::string& name) const;

  struct Copied {
    std::string sha256;
    int64_t size = 0;
  };
  // The digest of a file, which is on disk when this returns. kInternal when not a regular file.
  api::Result<Copied> Digest(const std::string& name) const;
  // Copies a file from anywhere into kTemporaryName, on disk when this returns.
  // REQUIRES: the caller holds the store's lock. Errors name `source`: kNotFound, kInvalidArgument when it is
  // not a regular file.
  api::Result<Copied> CopyIn(const std::filesystem::path& source) const;
  // Gives kTemporaryName its final name, or drops it.
  api::Result<void> Publish(const std::string& name) const;
  void DropTemporary() const;

  // Held until the descriptor goes; waits for other holders, of any process, for at most a minute: then
  // kUnavailable. Created when missing.
  api::Result<api::FileDescriptor> Lock(const std::string& name) const;
  // Takes the lock on the directory itself, held until this object goes. False: someone else has it.
  bool TryLock() const;

  const std::filesystem::path& path() const { return path_; }

 private:
  StoreDirectory(std::filesystem::path path, api::FileDescriptor fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::unexpected<api::Error> Failure(std::string_view name, int error) const;
  api::Result<api::FileDescriptor> CreateTemporary() const;
  api::Result<std::vector<std::string>> ListAll() const;
  api::Result<void> Unlink(const std::string& name, int flags) const;

  std::filesystem::path path_;  // for messages
  api::FileDescriptor fd_;
};

}  // namespace quire::server
