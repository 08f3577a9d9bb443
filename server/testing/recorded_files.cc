#include "server/testing/recorded_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

namespace quire::server::testing {
namespace {

namespace fs = std::filesystem;
using Call = RecordedFiles::Call;
using Kind = RecordedFiles::Call::Kind;

RecordedFiles* recording = nullptr;
int fail_at = 0;
int fail_with = 0;
int seen = 0;

// Counts a call that changes something. True: it fails, and errno says why.
bool Fails() {
  ++seen;
  if (seen != fail_at) return false;
  errno = fail_with;
  return true;
}

std::string Bytes(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void WriteDirectory(const RecordedFiles::Tree& tree, int directory, const fs::path& path) {
  fs::create_directories(path);
  const auto entries = tree.directories.find(directory);
  if (entries == tree.directories.end()) return;
  for (const auto& [name, object] : entries->second) {
    if (tree.directories.contains(object)) {
      WriteDirectory(tree, object, path / name);
    } else if (const auto file = tree.files.find(object); file != tree.files.end()) {
      std::ofstream(path / name, std::ios::binary) << file->second;
    }
  }
}

}  // namespace

void RecordedFiles::Tree::WriteTo(const fs::path& root) const { WriteDirectory(*this, 0, root); }

RecordedFiles::RecordedFiles(fs::path root) : root_(std::move(root)) {
  struct stat status {};
  ::stat(root_.c_str(), &status);
  device_ = status.st_dev;
  Scan(root_);
  recording = this;
}

RecordedFiles::~RecordedFiles() { Stop(); }

void RecordedFiles::Stop() {
  if (recording == this) recording = nullptr;
}

int RecordedFiles::Scan(const fs::path& path) {
  struct stat status {};
  ::lstat(path.c_str(), &status);
  const auto known = objects_.find(status.st_ino);
  const int object = known != objects_.end() ? known->second : NewObject(status);
  if (S_ISDIR(status.st_mode)) {
    begin_.directories[object];
    for (const auto& entry : fs::directory_iterator(path)) {
      const int inside = Scan(entry.path());
      begin_.directories[object][entry.path().filename()] = inside;
    }
  } else {
    begin_.files[object] = Bytes(path);
  }
  return object;
}

int RecordedFiles::ObjectOf(const struct stat& status) const {
  if (status.st_dev != device_) return -1;
  const auto found = objects_.find(status.st_ino);
  return found == objects_.end() ? -1 : found->second;
}

int RecordedFiles::NewObject(const struct stat& status) { return objects_[status.st_ino] = next_object_++; }

void RecordedFiles::Add(Call call) { calls_.push_back(std::move(call)); }

void RecordedFiles::Fail(int call, int error) {
  seen = 0;
  fail_at = call;
  fail_with = error;
}

int RecordedFiles::calls_seen() { return seen; }

void RecordedFiles::Apply(const Call& call, bool with_bytes, Tree& tree) {
  switch (call.kind) {
    case Kind::kMakeFile:
      tree.directories[call.directory][call.name] = call.object;
      tree.files[call.object];
      break;
    case Kind::kMakeDirectory:
      tree.directories[call.directory][call.name] = call.object;
      tree.directories[call.object];
      break;
    case Kind::kWrite: {
      std::string& bytes = tree.files[call.object];
      const auto end = static_cast<size_t>(call.offset) + call.bytes.size();
      if (bytes.size() < end) bytes.resize(end);  // zeros where the bytes did not get to the disk
      if (with_bytes) bytes.replace(static_cast<size_t>(call.offset), call.bytes.size(), call.bytes);
      break;
    }
    case Kind::kTruncate:
      tree.files[call.object].resize(static_cast<size_t>(call.offset));
      break;
    case Kind::kRename:
      if (auto& from = tree.directories[call.from_directory]; from.contains(call.from_name))
        from.erase(call.from_name);
      [[fallthrough]];
    case Kind::kLink:
      tree.directories[call.directory][call.name] = call.object;
      break;
    case Kind::kUnlink:
      tree.directories[call.directory].erase(call.name);
      break;
    case Kind::kSync:
      break;
  }
}

// Those of the first `crash` calls that a later sync among them has made durable.
std::vector<bool> RecordedFiles::OnDisk(size_t crash) const {
  std::vector<bool> durable(crash, false);
  std::set<int> synced;
  for (size_t i = crash; i-- > 0;) {
    const Call& call = calls_[i];
    if (call.kind == Kind::kSync) {
      synced.insert(call.object);
    } else if (call.kind == Kind::kWrite || call.kind == Kind::kTruncate) {
      durable[i] = synced.contains(call.object);
    } else {
      durable[i] = synced.contains(call.directory) ||
                   (call.kind == Kind::kRename && synced.contains(call.from_directory));
    }
  }
  return durable;
}

std::vector<RecordedFiles::Crash> RecordedFiles::Crashes() const {
  std::vector<Crash> crashes;
  for (size_t crash = 0; crash <= calls_.size(); ++crash) {
    if (crash > 0 && crash < calls_.size() && calls_[crash - 1].kind == Kind::kSync)
      continue;  // nothing was added
    const std::vector<bool> durable = OnDisk(crash);
    const auto loose = static_cast<size_t>(std::ranges::count(durable, false));
    for (size_t kept = 0; kept <= loose; ++kept) {
      for (const bool with_bytes : {true, false}) {
        Tree tree = begin_;
        size_t passed = 0;
        bool differs = false;  // without bytes
        for (size_t i = 0; i < crash; ++i) {
          if (!durable[i] && passed++ >= kept) continue;
          differs |= !durable[i] && calls_[i].kind == Kind::kWrite;
          Apply(calls_[i], with_bytes || durable[i], tree);
        }
        if (!with_bytes && !differs) continue;
        crashes.push_back({std::move(tree),
                           fmt::format("after call {} of {}, {} of {} unsynced calls kept, {} their bytes",
                                       crash, calls_.size(), kept, loose, with_bytes ? "with" : "without"),
                           crash == calls_.size()});
      }
    }
  }
  return crashes;
}

}  // namespace quire::server::testing

// ---- the calls, in the place of the C library's ----

namespace {

using quire::server::testing::Call;
using quire::server::testing::Fails;
using quire::server::testing::Kind;
using quire::server::testing::recording;

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// The recorded object of a descriptor or an entry; -1: none.
int ObjectOf(int fd) {
  struct stat status {};
  return recording != nullptr && ::fstat(fd, &status) == 0 ? recording->ObjectOf(status) : -1;
}
int ObjectOf(int directory, const char* name) {
  struct stat status {};
  const bool there = ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
  return recording != nullptr && there ? recording->ObjectOf(status) : -1;
}

void AddNew(Kind kind, int directory, const char* name) {
  const int parent = ObjectOf(directory);
  struct stat status {};
  if (parent < 0 || ::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  recording->Add({.kind = kind, .directory = parent, .name = name, .object = recording->NewObject(status)});
}

void AddBytes(int object, const void* bytes, ssize_t count, off_t offset) {
  recording->Add({.kind = Kind::kWrite,
                  .object = object,
                  .bytes = std::string(static_cast<const char*>(bytes), static_cast<size_t>(count)),
                  .offset = offset});
}

}  // namespace

extern "C" {

int openat(int directory, const char* path, int flags, ...) {
  static auto* const next = Next<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const bool makes = recording != nullptr && (flags & O_CREAT) != 0 &&
                     ::faccessat(directory, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
  if (makes && Fails()) return -1;
  const int fd = next(directory, path, flags, mode);
  if (fd >= 0 && makes) AddNew(Kind::kMakeFile, directory, path);
  return fd;
}

int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  static auto* const next = Next<int(int, const char*, mode_t)>("mkdirat");
  if (recording != nullptr && Fails()) return -1;
  const int made = next(directory, path, mode);
  if (made == 0) AddNew(Kind::kMakeDirectory, directory, path);
  return made;
}

int open(const char* path, int flags, ...) {
  static auto* const next = Next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (recording == nullptr || (flags & O_CREAT) == 0) return next(path, flags, mode);
  const std::string whole(path);
  const size_t slash = whole.rfind('/');
  const int directory = next(whole.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  const int fd = openat(directory, whole.substr(slash + 1).c_str(), flags, mode);
  const int error = errno;
  ::close(directory);
  errno = error;
  return fd;
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static auto* const next = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const int object = ObjectOf(fd);
  if (object >= 0 && Fails()) return -1;
  const ssize_t written = next(fd, bytes, count, offset);
  if (object >= 0 && written > 0) AddBytes(object, bytes, written, offset);
  return written;
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  const int object = ObjectOf(fd);
  if (object >= 0 && Fails()) return -1;
  const off_t offset = object < 0 ? 0 : ::lseek(fd, 0, SEEK_CUR);
  const ssize_t written = next(fd, bytes, count);
  if (object >= 0 && written > 0) AddBytes(object, bytes, written, offset);
  return written;
}

int ftruncate(int fd, off_t length) noexcept {
  static auto* const next = Next<int(int, off_t)>("ftruncate");
  const int object = ObjectOf(fd);
  if (object >= 0 && Fails()) return -1;
  const int done = next(fd, length);
  if (done == 0 && object >= 0) recording->Add({.kind = Kind::kTruncate, .object = object, .offset = length});
  return done;
}

int fsync(int fd) {
  static auto* const next = Next<int(int)>("fsync");
  const int object = ObjectOf(fd);
  if (object >= 0 && Fails()) return -1;
  const int done = next(fd);
  if (done == 0 && object >= 0) recording->Add({.kind = Kind::kSync, .object = object});
  return done;
}

int renameat(int from, const char* name, int to, const char* new_name) noexcept {
  static auto* const next = Next<int(int, const char*, int, const char*)>("renameat");
  const int object = ObjectOf(from, name);
  if (object >= 0 && Fails()) return -1;
  const int done = next(from, name, to, new_name);
  if (done == 0 && object >= 0) {
    recording->Add({.kind = Kind::kRename,
                    .directory = ObjectOf(to),
                    .name = new_name,
                    .from_directory = ObjectOf(from),
                    .from_name = name,
                    .object = object});
  }
  return done;
}

int linkat(int from, const char* name, int to, const char* new_name, int flags) noexcept {
  static auto* const next = Next<int(int, const char*, int, const char*, int)>("linkat");
  const int object = ObjectOf(from, name);
  if (object >= 0 && Fails()) return -1;
  const int done = next(from, name, to, new_name, flags);
  if (done == 0 && object >= 0) {
    recording->Add({.kind = Kind::kLink, .directory = ObjectOf(to), .name = new_name, .object = object});
  }
  return done;
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  static auto* const next = Next<int(int, const char*, int)>("unlinkat");
  const int object = ObjectOf(directory, path);
  if (object >= 0 && Fails()) return -1;
  const int done = next(directory, path, flags);
  if (done == 0 && object >= 0) {
    recording->Add({.kind = Kind::kUnlink, .directory = ObjectOf(directory), .name = path, .object = object});
  }
  return done;
}

// No shared blocks: every byte passes through write().
int ioctl(int, unsigned long, ...) noexcept {
  errno = ENOTTY;
  return -1;
}

}  // extern "C"
