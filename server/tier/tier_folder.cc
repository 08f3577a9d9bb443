#include "server/tier/tier_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>

#include "api/base/file_descriptor.h"
#include "api/base/io_thread.h"
#include "api/base/private_folder.h"
#include "server/tier/segment_file.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSegmentSuffix = ".quire-prefix";
constexpr char kSecretName[] = "secret";

std::unexpected<api::Error> SecretFailure(const fs::path& path, std::string_view reason) {
  return api::Fail(api::ErrorCode::kInternal, fmt::format("cannot use {}: {}", path.string(), reason));
}

std::unexpected<api::Error> SecretFailure(const fs::path& path, int error) {
  return SecretFailure(path, std::generic_category().message(error));
}

// Nothing: it is the name of no segment.
std::optional<SnapshotKey> KeyOfName(std::string_view name) {
  SnapshotKey key{};
  if (name.size() != 2 * key.size() + kSegmentSuffix.size() || !name.ends_with(kSegmentSuffix))
    return std::nullopt;
  for (size_t i = 0; i < 2 * key.size(); ++i) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const size_t digit = kDigits.find(name[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    key[i / 2] = static_cast<unsigned char>(key[i / 2] * 16 + digit);
  }
  return key;
}

// Appears whole or not at all.
api::Result<void> CreateSecret(const fs::path& folder, const SnapshotKey& secret) {
  const fs::path path = folder / api::UnfinishedFileName();
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  const api::FileDescriptor fd(::openat(AT_FDCWD, path.c_str(), kFlags, 0600));
  if (!fd.valid()) return SecretFailure(path, errno);
  ::flock(fd.get(), LOCK_EX | LOCK_NB);
  if (WriteAll(fd.get(), reinterpret_cast<const char*>(secret.data()), secret.size(), 0) &&
      ::fsync(fd.get()) == 0 &&
      ::renameat(AT_FDCWD, path.c_str(), AT_FDCWD, (folder / kSecretName).c_str()) == 0)
    return {};
  const int error = errno;
  ::unlinkat(AT_FDCWD, path.c_str(), 0);
  return SecretFailure(path, error);
}

// If two daemons begin at once, one creates it and both read it.
api::Result<SnapshotKey> LoadSecret(const fs::path& folder) {
  const api::FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.valid()) ::flock(lock.get(), LOCK_EX);
  const fs::path path = folder / kSecretName;
  SnapshotKey secret{};
  const api::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) {
    if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
      return SecretFailure(path, errno);
    if (auto created = CreateSecret(folder, secret); !created) return std::unexpected(created.error());
    return secret;
  }
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return SecretFailure(path, errno);
  if (!api::IsOwnFile(status) || status.st_size != static_cast<off_t>(secret.size()) ||
      (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return SecretFailure(path, "it is not the secret of a folder of prefixes; use another folder");
  if (!ReadAll(fd.get(), reinterpret_cast<char*>(secret.data()), secret.size(), 0))
    return SecretFailure(path, EIO);
  return secret;
}

}  // namespace

std::string SegmentFileName(const SnapshotKey& key) { return HexOf(key).append(kSegmentSuffix); }

api::Result<SnapshotKey> OpenTierFolder(const fs::path& folder) {
  api::AssertMayBlock();
  const auto created = api::MakePrivateFolder(folder);
  if (!created) return std::unexpected(created.error());
  auto secret = LoadSecret(folder);
  if (!secret && *created) ::rmdir(folder.c_str());
  return secret;
}

void VisitSegments(const fs::path& folder, const std::stop_token& stop,
                   const std::function<void(const FoundSegment&)>& visit) {
  api::AssertMayBlock();
  std::error_code error;
  for (fs::directory_iterator files(folder, error);
       !error && files != fs::directory_iterator() && !stop.stop_requested(); files.increment(error)) {
    const fs::path& path = files->path();
    if (api::IsAbandonedFile(path)) ::unlinkat(AT_FDCWD, path.c_str(), 0);
    const auto key = KeyOfName(path.filename().string());
    struct stat status {};
    if (!key || ::lstat(path.c_str(), &status) != 0 || !api::IsOwnFile(status)) continue;
    const auto used_ns = static_cast<uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                         static_cast<uint64_t>(status.st_mtim.tv_nsec);
    visit({used_ns, *key});
  }
}

NewestSegments FindNewest(const fs::path& folder, const std::stop_token& stop, size_t count) {
  const auto later = [](const FoundSegment& a, const FoundSegment& b) {
    return std::tie(a.used_ns, a.key) > std::tie(b.used_ns, b.key);
  };
  NewestSegments newest;
  std::vector<FoundSegment>& heap = newest.segments;  // the oldest first
  VisitSegments(folder, stop, [&](const FoundSegment& segment) {
    heap.push_back(segment);
    std::ranges::push_heap(heap, later);
    if (heap.size() <= count) return;
    std::ranges::pop_heap(heap, later);
    newest.surplus_ns = std::max(newest.surplus_ns, heap.back().used_ns);
    heap.pop_back();
  });
  return newest;
}

}  // namespace quire::server
