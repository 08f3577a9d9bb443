#include "server/store/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

#include "api/base/io_thread.h"
#include "api/base/sha256.h"
#include "api/base/stop_request.h"

namespace quire::server {
namespace {

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0644;
constexpr size_t kCopyChunkBytes = size_t{1} << 20;
constexpr std::chrono::seconds kLockWait(60);
constexpr std::chrono::milliseconds kLockPause(10);

std::string Reason(int error) {
  if (error == ELOOP) return "is a symbolic link";
  return std::generic_category().message(error);
}

std::unexpected<StoreError> PathFailure(const std::filesystem::path& path, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
  return std::unexpected(StoreError({.code = absent ? api::ErrorCode::kNotFound : api::ErrorCode::kInternal,
                                     .message = fmt::format("{}: {}", path.string(), Reason(error))},
                                    error));
}

// Reads up to `size` bytes; fewer at the end of the file; -1 with errno on failure.
ssize_t ReadSome(int fd, char* buffer, size_t size) {
  ssize_t got = 0;
  do {
    got = ::read(fd, buffer, size);
  } while (got < 0 && errno == EINTR);
  return got;
}

// 0, or errno.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int IsRegular(int fd, struct stat& status) {
  if (::fstat(fd, &status) != 0) return errno;
  return S_ISREG(status.st_mode) ? 0 : EINVAL;
}

}  // namespace

bool IsOutOfRoom(const StoreError& error) {
  return error.system_error == ENOSPC || error.system_error == EDQUOT || error.system_error == EFBIG;
}

StoreResult<StoreDirectory> StoreDirectory::OpenRoot(const std::filesystem::path& root) {
  api::AssertMayBlock();
  api::FileDescriptor fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return PathFailure(root, errno);
  return StoreDirectory(root, std::move(fd));
}

std::unexpected<StoreError> StoreDirectory::Failure(std::string_view name, int error) const {
  return PathFailure(path_ / name, error);
}

StoreResult<StoreDirectory> StoreDirectory::Enter(const std::string& name, bool create) const {
  api::AssertMayBlock();
  if (create) {
    if (::mkdirat(fd_.get(), name.c_str(), kDirectoryMode) != 0 && errno != EEXIST)
      return Failure(name, errno);
    // Also where it was there: whoever made it may have failed, or ended, before this.
    if (::fsync(fd_.get()) != 0) return Failure(name, errno);
  }
  api::FileDescriptor fd(::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) return Failure(name, errno);
  return StoreDirectory(path_ / name, std::move(fd));
}

StoreResult<std::vector<std::string>> StoreDirectory::List() const {
  auto names = ListAll();
  if (names) std::erase_if(*names, [](const std::string& name) { return name.starts_with('.'); });
  return names;
}

StoreResult<std::vector<std::string>> StoreDirectory::ListHidden() const {
  auto names = ListAll();
  if (names) {
    std::erase_if(*names, [](const std::string& name) {
      return !name.starts_with('.') || name == "." || name == "..";
    });
  }
  return names;
}

StoreResult<std::vector<std::string>> StoreDirectory::ListAll() const {
  api::AssertMayBlock();
  // A descriptor of its own: the position in the directory belongs to the open file.
  api::FileDescriptor fd(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Failure(".", errno);
  const std::unique_ptr<DIR, decltype([](DIR* open) { ::closedir(open); })> directory(::fdopendir(fd.get()));
  if (directory == nullptr) return Failure(".", errno);
  fd.Release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(directory.get())) names.emplace_back(entry->d_name);
  if (errno != 0) return Failure(".", errno);
  std::ranges::sort(names);
  return names;
}

StoreResult<FileStatus> StoreDirectory::Status(const std::string& name) const {
  api::AssertMayBlock();
  struct stat status {};
  if (::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return Failure(name, errno);
  if (S_ISLNK(status.st_mode)) return Failure(name, ELOOP);
  if (!S_ISREG(status.st_mode)) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("{}: not a regular file", (path_ / name).string()));
  }
  const auto since_epoch =
      std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return FileStatus{status.st_size, std::chrono::system_clock::time_point(since_epoch)};
}

StoreResult<std::string> StoreDirectory::Read(const std::string& name, int64_t bytes_max) const {
  api::AssertMayBlock();
  const api::FileDescriptor fd(
      ::openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return Failure(name, errno);
  struct stat status {};
  if (const int error = IsRegular(fd.get(), status); error != 0) return Failure(name, error);
  if (status.st_size > bytes_max) {
    return api::Fail(api::ErrorCode::kInternal,
                     fmt::format("{}: {} bytes, more than the {} allowed", (path_ / name).string(),
                                 status.st_size, bytes_max));
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ReadSome(fd.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0) return Failure(name, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

StoreResult<api::FileDescriptor> StoreDirectory::CreateTemporary() const {
  api::AssertMayBlock();
  const std::string name(kTemporaryName);
  // Under the lock, one that is there was left by a process that died.
  if (::unlinkat(fd_.get(), name.c_str(), 0) != 0 && errno != ENOENT) return Failure(name, errno);
  api::FileDescriptor fd(
      ::openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (fd.get() < 0) return Failure(name, errno);
  return fd;
}

StoreResult<void> StoreDirectory::Write(const std::string& name, std::string_view bytes) const {
  const auto fd = CreateTemporary();
  if (!fd) return std::unexpected(fd.error());
  int error = WriteAll(fd->get(), bytes);
  if (error == 0 && ::fsync(fd->get()) != 0) error = errno;
  if (error != 0) {
    DropTemporary();
    return Failure(name, error);
  }
  return Publish(name);
}

StoreResult<api::FileDescriptor> StoreDirectory::Create(const std::string& name) const {
  api::AssertMayBlock();
  api::FileDescriptor fd(
      ::openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode));
  if (fd.get() < 0) return Failure(name, errno);
  return fd;
}

StoreResult<void> StoreDirectory::Sync() const {
  api::AssertMayBlock();
  if (::fsync(fd_.get()) != 0) return Failure(".", errno);
  return {};
}

StoreResult<void> StoreDirectory::Unlink(const std::string& name, int flags) const {
  api::AssertMayBlock();
  if (::unlinkat(fd_.get(), name.c_str(), flags) != 0 || ::fsync(fd_.get()) != 0) return Failure(name, errno);
  return {};
}

StoreResult<void> StoreDirectory::Remove(const std::string& name) const { return Unlink(name, 0); }

StoreResult<void> StoreDirectory::RemoveDirectory(const std::string& name) const {
  return Unlink(name, AT_REMOVEDIR);
}

StoreResult<void> StoreDirectory::Move(const std::string& name, const StoreDirectory& to,
                                       const std::string& new_name) const {
  api::AssertMayBlock();
  if (::renameat(fd_.get(), name.c_str(), to.fd_.get(), new_name.c_str()) != 0) return Failure(name, errno);
  if (::fsync(to.fd_.get()) != 0) return to.Failure(new_name, errno);
  return {};
}

StoreResult<void> StoreDirectory::Link(const std::string& name, const StoreDirectory& to,
                                       const std::string& new_name) const {
  api::AssertMayBlock();
  if (::linkat(fd_.get(), name.c_str(), to.fd_.get(), new_name.c_str(), 0) != 0) return Failure(name, errno);
  return {};
}

StoreResult<void> StoreDirectory::Mark(const std::string& name) const {
  api::AssertMayBlock();
  const api::FileDescriptor fd(
      ::openat(fd_.get(), name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kFileMode));
  if (fd.get() < 0 || ::fsync(fd_.get()) != 0) return Failure(name, errno);
  return {};
}

StoreResult<StoreDirectory::Copied> StoreDirectory::Digest(const std::string& name) const {
  api::AssertMayBlock();
  const api::FileDescriptor fd(
      ::openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return Failure(name, errno);
  struct stat status {};
  if (const int error = IsRegular(fd.get(), status); error != 0) return Failure(name, error);
  api::Sha256 hash;
  Copied digested;
  std::string chunk(kCopyChunkBytes, '\0');
  for (;;) {
    const ssize_t got = ReadSome(fd.get(), chunk.data(), chunk.size());
    if (got < 0) return Failure(name, errno);
    if (got == 0) break;
    if (api::StopScope::requested()) return Failure(name, ECANCELED);
    hash.Update(std::string_view(chunk.data(), static_cast<size_t>(got)));
    digested.size += got;
  }
  if (::fsync(fd.get()) != 0) return Failure(name, errno);
  digested.sha256 = hash.Finish();
  return digested;
}

StoreResult<StoreDirectory::Copied> StoreDirectory::CopyIn(const std::filesystem::path& source) const {
  api::AssertMayBlock();
  const api::FileDescriptor from(::open(source.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (from.get() < 0) return PathFailure(source, errno);
  struct stat status {};
  if (IsRegular(from.get(), status) != 0) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("{}: not a regular file", source.string()));
  }
  const auto to = CreateTemporary();
  if (!to) return std::unexpected(to.error());

  // Where the file system can share blocks nothing is written, and the digest is taken of the copy.
  const bool shared = ::ioctl(to->get(), FICLONE, from.get()) == 0;
  const int reader = shared ? to->get() : from.get();
  api::Sha256 hash;
  Copied copied;
  std::string chunk(kCopyChunkBytes, '\0');
  int error = 0;
  while (error == 0) {
    const ssize_t got = ReadSome(reader, chunk.data(), chunk.size());
    if (got <= 0) {
      error = got < 0 ? errno : 0;
      break;
    }
    const std::string_view bytes(chunk.data(), static_cast<size_t>(got));
    hash.Update(bytes);
    copied.size += got;
    if (!shared) error = WriteAll(to->get(), bytes);
    if (error == 0 && api::StopScope::requested()) error = ECANCELED;
  }
  if (error == 0 && ::fsync(to->get()) != 0) error = errno;
  if (error != 0) {
    DropTemporary();
    return Failure(kTemporaryName, error);
  }
  copied.sha256 = hash.Finish();
  return copied;
}

StoreResult<void> StoreDirectory::Publish(const std::string& name) const {
  api::AssertMayBlock();
  const std::string temporary(kTemporaryName);
  if (::renameat(fd_.get(), temporary.c_str(), fd_.get(), name.c_str()) != 0) {
    const int error = errno;
    DropTemporary();
    return Failure(name, error);
  }
  if (::fsync(fd_.get()) != 0) return Failure(name, errno);
  return {};
}

void StoreDirectory::DropTemporary() const { ::unlinkat(fd_.get(), std::string(kTemporaryName).c_str(), 0); }

StoreResult<api::FileDescriptor> StoreDirectory::Lock(const std::string& name) const {
  api::AssertMayBlock();
  api::FileDescriptor fd(
      ::openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kFileMode));
  if (fd.get() < 0) return Failure(name, errno);
  const auto deadline = std::chrono::steady_clock::now() + kLockWait;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      if (std::chrono::steady_clock::now() >= deadline || api::StopScope::requested()) {
        return api::Fail(api::ErrorCode::kUnavailable,
                         fmt::format("{}: another process holds the lock", (path_ / name).string()));
      }
      std::this_thread::sleep_for(kLockPause);
    } else if (errno != EINTR) {
      return Failure(name, errno);
    }
  }
  return fd;
}

bool StoreDirectory::TryLock() const { return ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0; }

}  // namespace quire::server
