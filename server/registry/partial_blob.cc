#include "server/registry/partial_blob.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "api/base/io_thread.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::system_clock;

constexpr auto kAgeMax = std::chrono::hours(24 * 7);

std::unexpected<StoreError> PathFailure(const fs::path& path, int error) {
  return std::unexpected(
      StoreError({.code = api::ErrorCode::kInternal,
                  .message = fmt::format("{}: {}", path.string(), std::generic_category().message(error))},
                 error));
}

// Whose a file is that was opened: ours, locked; somebody else's; or nobody's, as between opening and locking
// it has become the blob, or was taken away.
enum class PartialLock { kMine, kOther, kGone };

PartialLock LockFile(const fs::path& path, const api::FileDescriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return PartialLock::kOther;
  struct stat entry {
  }, open{};
  const bool there = ::lstat(path.c_str(), &entry) == 0 && ::fstat(file.get(), &open) == 0 &&
                     entry.st_dev == open.st_dev && entry.st_ino == open.st_ino;
  return there ? PartialLock::kMine : PartialLock::kGone;
}

// Takes a file away that nobody has locked and nobody has written to since.
void RemoveFree(const StoreDirectory& blobs, const std::string& name, Clock::time_point since) {
  const fs::path path = blobs.path() / name;
  const api::FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0 || LockFile(path, file) != PartialLock::kMine) return;
  const auto status = blobs.Status(name);
  if (!status || status->modified_at > since) return;
  if (auto removed = blobs.Remove(name); !removed) spdlog::warn("not removed: {}", removed.error().message);
}

}  // namespace

std::unexpected<StoreError> PartialBlob::Failure(int error) const {
  return PathFailure(blobs_.path() / name_, error);
}

StoreResult<std::optional<PartialBlob>> PartialBlob::Open(StoreDirectory blobs, const std::string& blob) {
  api::AssertMayBlock();
  std::string name = std::string(kPrefix) + blob;
  const fs::path path = blobs.path() / name;
  while (true) {
    api::FileDescriptor file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file.get() < 0) return PathFailure(path, errno);
    struct stat open {};
    if (::fstat(file.get(), &open) != 0) return PathFailure(path, errno);
    if (!S_ISREG(open.st_mode)) return PathFailure(path, EINVAL);
    const PartialLock owner = LockFile(path, file);
    if (owner == PartialLock::kOther) return std::nullopt;
    if (owner == PartialLock::kGone) continue;
    if (::fstat(file.get(), &open) != 0) return PathFailure(path, errno);  // its size now that it is ours
    return PartialBlob(std::move(blobs), std::move(name), std::move(file), open.st_size);
  }
}

void PartialBlob::RemoveUnused(const StoreDirectory& blobs, const std::string& blob) {
  api::AssertMayBlock();
  RemoveFree(blobs, std::string(kPrefix) + blob, Clock::time_point::max());
}

void PartialBlob::RemoveOld(const StoreDirectory& blobs) {
  const auto names = blobs.ListHidden();
  if (!names) return;
  const auto week_ago = Clock::now() - kAgeMax;
  for (const std::string& name : *names) {
    if (name.starts_with(kPrefix)) RemoveFree(blobs, name, week_ago);
  }
}

StoreResult<void> PartialBlob::Append(std::string_view bytes) {
  api::AssertMayBlock();
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), size_);
    if (written < 0 && errno != EINTR) return Failure(errno);
    if (written <= 0) continue;
    size_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

StoreResult<void> PartialBlob::Truncate() {
  if (::ftruncate(file_.get(), 0) != 0) return Failure(errno);
  size_ = 0;
  return {};
}

StoreResult<void> PartialBlob::Finish(const std::string& blob) {
  api::AssertMayBlock();
  if (::fsync(file_.get()) != 0) {
    // The system may have dropped what it could not write, and says so only once.
    auto failure = Failure(errno);
    if (auto removed = blobs_.Remove(name_); !removed)
      spdlog::warn("not removed: {}", removed.error().message);
    return failure;
  }
  const auto digest = blobs_.Digest(name_);
  if (!digest) return std::unexpected(digest.error());
  const std::string got = "sha256-" + digest->sha256;
  if (got == blob) return blobs_.Move(name_, blobs_, blob);
  if (auto removed = blobs_.Remove(name_); !removed) return removed;
  const auto shown = [](std::string name) { return name.replace(name.find('-'), 1, ":"); };
  return api::Fail(api::ErrorCode::kBadModel,
                   fmt::format("digest mismatch, expected {}, got {}", shown(blob), shown(got)));
}

}  // namespace quire::server
