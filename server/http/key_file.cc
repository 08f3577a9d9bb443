#include "server/http/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <expected>
#include <system_error>
#include <thread>
#include <utility>

#include "api/base/file_descriptor.h"
#include "api/base/io_thread.h"

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

std::string TextOf(int error) {
  return error == EWOULDBLOCK ? "another process is changing it" : std::generic_category().message(error);
}

// The file, locked while it is open; otherwise errno. One that was replaced before the lock is opened again.
std::expected<api::FileDescriptor, int> OpenLocked(const fs::path& path) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(kLockPause);
    // A pipe is refused by who reads it, not waited for. NFS locks only what is open for writing.
    constexpr int kFlags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    api::FileDescriptor fd(::open(path.c_str(), O_RDWR | kFlags));
    if (!fd.valid()) fd = api::FileDescriptor(::open(path.c_str(), O_RDONLY | kFlags));
    if (!fd.valid()) return std::unexpected(errno);
    const bool locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) return std::unexpected(errno);
    if (locked && IsStill(fd, path)) return fd;
  }
  return std::unexpected(EWOULDBLOCK);
}

// Where the file is, or will be: a link to it stays.
fs::path PlaceOf(fs::path path) {
  constexpr int kLinksMax = 40;  // as the system has it: what follows more fails to open
  std::error_code ec;
  for (int links = 0; links < kLinksMax; ++links) {
    const fs::path target = fs::read_symlink(path, ec);
    if (ec) break;
    path = path.parent_path() / target;
  }
  return path;
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

  // Owner, group and mode are those of `old`; null: it is its owner's alone.
  std::expected<void, std::string> Write(const api::FileDescriptor* old, std::string_view text) const {
    if (!fd_.valid()) return std::unexpected(ErrnoText());
    if (old != nullptr) {
      if (auto kept = CopyOwner(*old); !kept) return kept;
    }
    while (!text.empty()) {
      const ssize_t written = ::write(fd_.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return std::unexpected(ErrnoText());
      text.remove_prefix(static_cast<size_t>(written));
    }
    if (::fsync(fd_.get()) != 0) return std::unexpected(ErrnoText());
    return {};
  }

  // What a daemon will read. Errors name the key file.
  api::Result<KeyRing> Read() const {
    auto keys = KeyRing::Read(name_);
    if (!keys && keys.error().message.starts_with(name_))
      keys.error().message.replace(0, name_.size(), place_.string());
    return keys;
  }

  std::expected<void, std::string> Replace() {
    if (::rename(name_.c_str(), place_.c_str()) != 0) return std::unexpected(ErrnoText());
    done_ = true;
    SyncFolder();
    return {};
  }

  // Where there is no key file. False: there is one by now.
  std::expected<bool, std::string> Publish() const {
    if (::link(name_.c_str(), place_.c_str()) != 0) {
      if (errno == EEXIST) return false;
      return std::unexpected(ErrnoText());
    }
    SyncFolder();
    return true;
  }

 private:
  std::expected<void, std::string> CopyOwner(const api::FileDescriptor& old) const {
    struct stat before {};
    struct stat now {};
    if (::fstat(old.get(), &before) != 0 || ::fstat(fd_.get(), &now) != 0)
      return std::unexpected(ErrnoText());
    if (!S_ISREG(before.st_mode)) return std::unexpected<std::string>("not a regular file");
    // The service's system call filter refuses the call, also where it would change nothing.
    const bool same = before.st_uid == now.st_uid && before.st_gid == now.st_gid;
    if (!same && ::fchown(fd_.get(), before.st_uid, before.st_gid) != 0)
      return std::unexpected("cannot keep its owner: " + ErrnoText());
    if (::fchmod(fd_.get(), before.st_mode & 07777) != 0) return std::unexpected(ErrnoText());
    return {};
  }

  // Nothing is undone when this fails: the file is there, and only a crash now can bring the old one back.
  void SyncFolder() const {
    const fs::path parent = place_.has_parent_path() ? place_.parent_path() : fs::path(".");
    const api::FileDescriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.valid()) ::fsync(folder.get());
  }

  const fs::path place_;
  std::string name_;
  api::FileDescriptor fd_;
  bool done_ = false;
};

std::expected<std::string, std::string> ReadOpen(const api::FileDescriptor& fd) {
  std::string text;
  std::array<char, 16384> bytes;
  for (;;) {
    const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(ErrnoText());
    text.append(bytes.data(), static_cast<size_t>(got));
  }
}

// The text with one line more. The last line may lack its end.
std::string WithLine(std::string text, std::string_view line) {
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text.append(line).append("\n");
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

api::Result<KeyRing> AppendKey(const fs::path& path, const NewKey& key) {
  api::AssertMayBlock();
  const fs::path place = PlaceOf(path);
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    const auto locked = OpenLocked(place);
    if (!locked && locked.error() != ENOENT) return Unavailable(path, TextOf(locked.error()));
    const auto text = locked ? ReadOpen(*locked) : std::string();
    if (!text) return Unavailable(path, text.error());
    NewKeyFile file(place);
    const auto written = file.Write(locked ? &*locked : nullptr, WithLine(*text, key.line));
    if (!written) return Unavailable(path, written.error());
    auto keys = file.Read();
    if (!keys) return keys;
    if (locked) {
      if (const auto replaced = file.Replace(); !replaced) return Unavailable(path, replaced.error());
      return keys;
    }
    const auto published = file.Publish();
    if (!published) return Unavailable(path, published.error());
    if (*published) return keys;
  }
  return Unavailable(path, TextOf(EWOULDBLOCK));
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
  auto keys = AppendKey(path, *made);
  if (!keys) return std::unexpected(std::move(keys).error());
  return AddedKey{std::move(made->secret), *std::move(keys)};
}

api::Result<KeyRing> RemoveKey(const fs::path& path, std::string_view name) {
  api::AssertMayBlock();
  const fs::path file = PlaceOf(path);
  const auto locked = OpenLocked(file);
  if (!locked) return Unavailable(path, TextOf(locked.error()));
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
  const auto text = ReadOpen(*locked);
  if (!text) return Unavailable(path, text.error());
  const std::string rest = WithoutKey(*text, name);
  NewKeyFile changed(file);
  if (const auto written = changed.Write(&*locked, rest); !written) return Unavailable(path, written.error());
  auto keys = changed.Read();
  if (!keys || keys->size() + 1 != there->size()) return Unavailable(path, "it was changed meanwhile");
  if (const auto replaced = changed.Replace(); !replaced) return Unavailable(path, replaced.error());
  return keys;
}

}  // namespace quire::server
