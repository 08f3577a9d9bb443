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

constexpr auto kAgeMax = std::chrono::hours(24 * 7);

}  // namespace

std::unexpected<api::Error> PartialBlob::Failure(int error) const {
  return api::Fail(api::ErrorCode::kInternal, fmt::format("{}: {}", (blobs_.path() / name_).string(),
                                                          std::generic_category().message(error)));
}

api::Result<std::optional<PartialBlob>> PartialBlob::Open(StoreDirectory blobs, const std::string& blob) {
  api::AssertMayBlock();
  std::string name = std::string(kPrefix) + blob;
  const std::filesystem::path path = blobs.path() / name;
  while (true) {
    api::FileDescriptor file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, S_IRUSR | S_IWUSR));
    struct stat entry {
    }, open{};
    if (file.get() < 0 || ::fstat(file.get(), &open) != 0 || !S_ISREG(open.st_mode)) {
      const int error = file.get() < 0 ? errno : EINVAL;
      return api::Fail(api::ErrorCode::kInternal,
                       fmt::format("{}: {}", path.string(), std::generic_category().message(error)));
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
    // Between opening and locking it may have become the blob, or been taken away.
    if (::lstat(path.c_str(), &entry) != 0 || entry.st_ino != open.st_ino) continue;
    if (::fstat(file.get(), &open) != 0) continue;
    return PartialBlob(std::move(blobs), std::move(name), std::move(file), open.st_size);
  }
}

void PartialBlob::RemoveOld(const StoreDirectory& blobs) {
  const auto names = blobs.ListHidden();
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kPrefix)) continue;
    const auto status = blobs.Status(name);
    if (!status || std::chrono::system_clock::now() - status->modified_at < kAgeMax) continue;
    if (auto removed = blobs.Remove(name); !removed) spdlog::warn("not removed: {}", removed.error().message);
  }
}

api::Result<void> PartialBlob::Append(std::string_view bytes) {
  api::AssertMayBlock();
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), size_);
    if (written < 0 && errno != EINTR) {
      const int error = errno;
      out_of_room_ = error == ENOSPC || error == EDQUOT || error == EFBIG;
      return Failure(error);
    }
    if (written <= 0) continue;
    size_ += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

api::Result<void> PartialBlob::Remove() { return blobs_.Remove(name_); }

api::Result<void> PartialBlob::Truncate() {
  if (::ftruncate(file_.get(), 0) != 0) return Failure(errno);
  size_ = 0;
  return {};
}

api::Result<void> PartialBlob::Finish(const std::string& blob) {
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
