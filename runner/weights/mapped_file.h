// A regular file mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "api/base/error.h"

namespace quire::runner::weights {

// Movable owner of one mapping; the bytes are shared with the page cache and any thread may read them.
// The file must not be shortened while it is mapped: a read past its new end is a SIGBUS that ends the
// process.
class MappedFile {
 public:
  // kNotFound when the path does not exist; kBadModel "FILE: reason" when it is not a regular file, may not
  // be read, or has more than `bytes_max` bytes. An empty file maps to no bytes. Symlinks are followed.
  static api::Result<MappedFile> Open(const std::filesystem::path& path, uint64_t bytes_max = kNoLimit);
  // The same of a descriptor that is open for reading, which stays the caller's. `path`: for messages.
  static api::Result<MappedFile> Map(int fd, std::string path, uint64_t bytes_max = kNoLimit);

  static constexpr uint64_t kNoLimit = UINT64_MAX;

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace quire::runner::weights
