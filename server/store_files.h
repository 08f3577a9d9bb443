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

#include "api/error.h"

namespace quire::server {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_;  // -1 = none
};

struct FileStatus {
  int64_t size = 0;
  std::chrono::system_clock::time_point modified_at;
};

// An open directory; any thread. Errors: kNotFound when the entry does not exist, kInternal for everything
// else the system refuses; messages name path and reason. REQUIRES: `name` is one path component other than
// "." and "..".
class StoreDirectory {
 public:
  // Names beginning with this are ours while they are written; List() leaves them out.
  static constexpr std::string_view kTemporaryName = ".quire-new";

  static api::Result<StoreDirectory> OpenRoot(const std::filesystem::path& root);

  // Creates it (0700) when `create` and it is missing.
  api::Result<StoreDirectory> Enter(const std::string& name, bool create = false) const;

  // Entries that do not begin with a dot, sorted.
  api::Result<std::vector<std::string>> List() const;

  // A regular file.
  api::Result<FileStatus> Status(const std::string& name) const;
  // kInternal when it has more than `bytes_max` bytes.
  api::Result<std::string> Read(const std::string& name, int64_t bytes_max) const;
  // Appears whole or not at all, also after a crash. REQUIRES: the caller holds the store's lock.
  api::Result<void> Write(const std::string& name, std::string_view bytes) const;

  // Creates an empty file; nothing happens when it is there. Needs no lock.
  api::Result<void> Mark(const std::string& name) const;

  struct Copied {
    std::string sha256;
    int64_t size = 0;
  };
  // Copies a file from anywhere into kTemporaryName, on disk when this returns.
  // REQUIRES: the caller holds the store's lock. Errors name `source`: kNotFound, kInvalidArgument when it is
  // not a regular file.
  api::Result<Copied> CopyIn(const std::filesystem::path& source) const;
  // Gives kTemporaryName its final name, or drops it.
  api::Result<void> Publish(const std::string& name) const;
  void DropTemporary() const;

  // Held until the descriptor goes; waits for other holders, of any process. Created when missing.
  api::Result<FileDescriptor> Lock(const std::string& name) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  StoreDirectory(std::filesystem::path path, FileDescriptor fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::unexpected<api::Error> Failure(std::string_view name, int error) const;
  api::Result<FileDescriptor> CreateTemporary() const;

  std::filesystem::path path_;  // for messages
  FileDescriptor fd_;
};

}  // namespace quire::server
