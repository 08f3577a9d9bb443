#include "server/http/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <expected>
#include <system_error>
#include <thread>
#include <utility>

#include "api/base/file_descriptor.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

// How long one who changes the file waits for another.
constexpr int kLockAttempts = 100;
constexpr std::chrono::milliseconds kLockPause(20);

std::string ErrnoText() { return std::generic_category().message(errno); }

std::unexpected<api::Error> Unavailable(const fs::path& path, std::string_view why) {
  return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: {}", path.string(), why));
}

bool IsStill(const api::FileDescriptor& fd, const fs::path& path) {
  struct stat opened {};
  struct stat there {};
  return ::fstat(fd.get(), &opened) == 0 && ::stat(path.c_str(), &there) == 0 &&
         opened.st_ino == there.st_ino && opened.st_dev == there.st_dev;
}

// The file, locked while it is open. One that was replaced before the lock is opened again.
std::expected<api::FileDescriptor, std::string> OpenLocked(const fs::path& path, int flags) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kLockPause);
    api::FileDescriptor fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0600));
    if (!fd.valid()) return std::unexpected(ErrnoText());
    const bool locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) return std::unexpected(ErrnoText());
    if (locked && IsStill(fd, path)) return fd;
  }
  return std::unexpected<std::string>("another process is changing it");
}

std::expected<void, std::string> WriteWhole(int fd, std::string_view text) {
  const ssize_t written = ::write(fd, text.data(), text.size());
  if (written < 0) return std::unexpected(ErrnoText());
  if (static_cast<size_t>(written) != text.size()) return std::unexpected<std::string>("no space left");
  if (::fsync(fd) != 0) return std::unexpected(ErrnoText());
  return {};
}

// A file beside the key file, which takes its place or is removed.
class NewKeyFile {
 public:
  explicit NewKeyFile(const fs::path& place)
      : place_(place), name_(place.string() + ".XXXXXX"), fd_(::mkostemp(name_.data(), O_CLOEXEC)) {}
  NewKeyFile(const NewKeyFile&) = delete;
  NewKeyFile& operator=(const NewKeyFile&) = delete;
  ~NewKeyFile() {
    if (fd_.valid() && !done_) ::unlink(name_.c_str());
  }

  // Owner, group and mode are those of `old`.
  std::expected<void, std::string> Replace(const api::FileDescriptor& old, std::string_view text) {
    struct stat before {};
    if (!fd_.valid() || ::fstat(old.get(), &before) != 0) return std::unexpected(ErrnoText());
    if (::fchown(fd_.get(), before.st_uid, before.st_gid) != 0) {
      return std::unexpected("cannot keep its owner: " + ErrnoText());
    }
    if (::fchmod(fd_.get(), before.st_mode & 07777) != 0) return std::unexpected(ErrnoText());
    if (auto written = WriteWhole(fd_.get(), text); !written) return written;
    if (::rename(name_.c_str(), place_.c_str()) != 0) return std::unexpected(ErrnoText());
    done_ = true;
    const api::FileDescriptor folder(
        ::open(place_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.valid()) ::fsync(folder.get());  // without it a crash may bring the key back
    return {};
  }

 private:
  const fs::path place_;
  std::string name_;
  api::FileDescriptor fd_;
  bool done_ = false;
};

std::string ReadOpen(const api::FileDescriptor& fd) {
  std::string text;
  char bytes[16384];
  for (ssize_t got = 0; (got = ::read(fd.get(), bytes, sizeof(bytes))) > 0;)
    text.append(bytes, static_cast<size_t>(got));
  return text;
}

// The lines of a valid key file without the key's.
std::string WithoutKey(std::string_view text, std::string_view name) {
  constexpr std::string_view kBlanks = " \t\r";
  std::string rest;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
    text.remove_prefix(line.size());
    std::string_view first = line.substr(std::min(line.find_first_not_of(kBlanks), line.size()));
    first = first.substr(0, first.find_first_of(" \t\r\n"));
    if (first != name) rest += line;
  }
  return rest;
}

}  // namespace

api::Result<void> AppendKey(const std::filesystem::path& path, const NewKey& key) {
  const auto fail = [&path](std::string_view why) { return Unavailable(path, why); };
  const auto locked = OpenLocked(path, O_RDWR | O_APPEND | O_CREAT);
  if (!locked) return fail(locked.error());
  const api::FileDescriptor& fd = *locked;
  // The last line may lack its end.
  char last = '\n';
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);
  const bool known = size == 0 || (size > 0 && ::pread(fd.get(), &last, 1, size - 1) == 1);
  if (!known) return fail(ErrnoText());
  const std::string text = (last == '\n' ? "" : "\n") + key.line + "\n";
  if (const auto written = WriteWhole(fd.get(), text); !written) return fail(written.error());
  return {};
}

api::Result<AddedKey> AddKey(const std::filesystem::path& path, std::string_view name, Role role,
                             const KeyLimits& limits) {
  const auto there = KeyRing::Read(path);
  if (!there) return std::unexpected(there.error());
  if (there->Names(name)) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("there is a key named {}", name), "name");
  }
  auto made = MakeKey(name, role, limits);
  if (!made) return std::unexpected(std::move(made).error());
  if (const auto appended = AppendKey(path, *made); !appended) return std::unexpected(appended.error());
  auto keys = KeyRing::Read(path);
  if (!keys) return std::unexpected(std::move(keys).error());
  return AddedKey{std::move(made->secret), *std::move(keys)};
}

api::Result<KeyRing> RemoveKey(const fs::path& path, std::string_view name) {
  std::error_code ec;
  const fs::path file = fs::canonical(path, ec);  // a link to it stays
  if (ec) return Unavailable(path, ec.message());
  const auto locked = OpenLocked(file, O_RDONLY);
  if (!locked) return Unavailable(path, locked.error());
  const auto there = KeyRing::Read(file);
  if (!there) return std::unexpected(there.error());
  if (!there->Names(name)) {
    return api::Fail(api::ErrorCode::kNotFound, fmt::format("there is no key named {}", name), "name");
  }
  if (there->size() == 1) {
    return api::Fail(api::ErrorCode::kForbidden,
                     fmt::format("{} is the only key; a server without keys lets everybody in", name),
                     "name");
  }
  const std::string rest = WithoutKey(ReadOpen(*locked), name);
  auto keys = KeyRing::Parse(rest);
  if (!keys || keys->size() + 1 != there->size()) return Unavailable(path, "it was changed meanwhile");
  if (const auto replaced = NewKeyFile(file).Replace(*locked, rest); !replaced) {
    return Unavailable(path, replaced.error());
  }
  return keys;
}

}  // namespace quire::server
