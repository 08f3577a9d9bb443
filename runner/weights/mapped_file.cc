#include "runner/weights/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "api/base/file_descriptor.h"

namespace quire::runner::weights {
namespace {

std::unexpected<api::Error> SystemFailure(const std::string& path, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  return api::Fail(absent ? api::ErrorCode::kNotFound : api::ErrorCode::kBadModel,
                   fmt::format("{}: {}", path, std::generic_category().message(error)));
}

}  // namespace

api::Result<MappedFile> MappedFile::Open(const std::filesystem::path& path, uint64_t bytes_max) {
  std::string name = path.string();
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const api::FileDescriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.get() < 0) return SystemFailure(name, errno);
  return Map(file.get(), std::move(name), bytes_max);
}

api::Result<MappedFile> MappedFile::Map(int fd, std::string path, uint64_t bytes_max) {
  struct stat status {};
  // Not fstat(), which is newfstatat in some C libraries: that call takes paths, and a runner may look up
  // none.
  if (::syscall(SYS_fstat, fd, &status) != 0) return SystemFailure(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return api::Fail(api::ErrorCode::kBadModel, fmt::format("{}: not a regular file", path));
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > bytes_max) {
    return api::Fail(api::ErrorCode::kBadModel,
                     fmt::format("{}: {} bytes, more than the {} allowed", path, size, bytes_max));
  }
  if (size == 0) return MappedFile(std::move(path), {});
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return SystemFailure(path, errno);
  return MappedFile(std::move(path), {static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  // munmap takes a mutable pointer to what was mapped read-only; nothing is written through it.
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace quire::runner::weights
