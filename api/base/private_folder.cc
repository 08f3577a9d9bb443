#include "api/base/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "api/base/file_descriptor.h"
#include "api/base/io_thread.h"
#include "api/base/random_id.h"

namespace quire::api {
namespace {

constexpr std::string_view kUnfinishedPrefix = "new-";
constexpr std::string_view kUnfinishedSuffix = ".quire-part";
constexpr size_t kUnfinishedDigits = 16;

bool IsUnfinishedName(std::string_view name) {
  if (name.size() != kUnfinishedPrefix.size() + kUnfinishedDigits + kUnfinishedSuffix.size()) return false;
  const std::string_view digits = name.substr(kUnfinishedPrefix.size(), kUnfinishedDigits);
  return name.starts_with(kUnfinishedPrefix) && name.ends_with(kUnfinishedSuffix) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::unexpected<Error> FolderFailure(const std::filesystem::path& folder, int error) {
  return Fail(ErrorCode::kInternal,
              fmt::format("cannot create {}: {}", folder.string(), std::generic_category().message(error)));
}

}  // namespace

bool IsOwnFile(const struct stat& status) { return S_ISREG(status.st_mode) && status.st_uid == ::geteuid(); }

Result<bool> MakePrivateFolder(const std::filesystem::path& folder) {
  AssertMayBlock();
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0) {
    if (!S_ISDIR(status.st_mode)) return FolderFailure(folder, ENOTDIR);
    const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (others_write || (status.st_uid != ::geteuid() && status.st_uid != 0)) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("others may write {}: use a folder that only this user writes (chmod go-w)",
                              folder.string()));
    }
    return false;
  }
  if (errno != ENOENT) return FolderFailure(folder, errno);
  std::vector<std::filesystem::path> missing;
  for (std::filesystem::path path = folder; ::stat(path.empty() ? "." : path.c_str(), &status) != 0;
       path = path.parent_path()) {
    if (path.has_filename()) missing.push_back(path);
  }
  for (size_t made = missing.size(); made > 0; --made) {
    if (::mkdir(missing[made - 1].c_str(), S_IRWXU) == 0 || errno == EEXIST) continue;
    const int error = errno;
    for (size_t i = made; i < missing.size(); ++i) ::rmdir(missing[i].c_str());
    return FolderFailure(folder, error);
  }
  return true;
}

std::string UnfinishedFileName() {
  return fmt::format("{}{:016x}{}", kUnfinishedPrefix, RandomBits(), kUnfinishedSuffix);
}

bool IsAbandonedFile(const std::filesystem::path& path) {
  if (!IsUnfinishedName(path.filename().string())) return false;
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  return fd.valid() && ::fstat(fd.get(), &status) == 0 && IsOwnFile(status) &&
         ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace quire::api
