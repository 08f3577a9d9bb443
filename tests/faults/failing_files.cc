// The C library's calls that change files, for the whole program: they fail, kill the process or take long
// where Faults() says so. Those that look at files, open or read them take long. Sockets, pipes and terminals
// are left alone.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <string_view>

#include "tests/faults/fault_control.h"

namespace {

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

struct NoPart {
  void operator()() const {}
};

// True: the call fails, and errno says why. `do_half`: does a part of the call.
template <class Half = NoPart>
bool Fails(const Half& do_half = {}) {
  quire::faults::FaultControl& faults = quire::faults::Faults();
  const int64_t delay = faults.file_delay_microseconds.load(std::memory_order_relaxed);
  if (delay > 0) ::usleep(static_cast<useconds_t>(delay));
  if (!quire::faults::CountDown(faults.file_countdown, faults.file_repeats, faults.file_calls_failed))
    return false;
  const int64_t error = faults.file_error;
  if (error == quire::faults::kKillInside) do_half();
  if (error < 0) ::kill(::getpid(), SIGKILL);
  errno = static_cast<int>(error);
  return true;
}

bool IsFile(int fd) {
  struct stat status {};
  return fd > STDERR_FILENO && ::fstat(fd, &status) == 0 &&
         (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode));
}

int64_t ReadDelay() {
  return quire::faults::Faults().file_read_delay_microseconds.load(std::memory_order_relaxed);
}

// Before a look at a file by its path.
void DelayLook(std::string_view path) {
  const int64_t delay = ReadDelay();
  if (delay <= 0 || path.starts_with("/proc/") || path.starts_with("/sys/")) return;
  ::usleep(static_cast<useconds_t>(delay));
}

// Before bytes of a file are read.
void DelayRead(int fd) {
  const int64_t delay = ReadDelay();
  struct statfs system {};
  if (delay <= 0 || !IsFile(fd) || ::fstatfs(fd, &system) != 0) return;
  if (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC) return;
  ::usleep(static_cast<useconds_t>(delay));
}

}  // namespace

extern "C" {

int stat(const char* path, struct stat* status) noexcept {
  static auto* const next = Next<int(const char*, struct stat*)>("stat");
  DelayLook(path);
  return next(path, status);
}

int lstat(const char* path, struct stat* status) noexcept {
  static auto* const next = Next<int(const char*, struct stat*)>("lstat");
  DelayLook(path);
  return next(path, status);
}

int fstatat(int directory, const char* path, struct stat* status, int flags) noexcept {
  static auto* const next = Next<int(int, const char*, struct stat*, int)>("fstatat");
  DelayLook(path);
  return next(directory, path, status, flags);
}

ssize_t read(int fd, void* bytes, size_t count) {
  static auto* const next = Next<ssize_t(int, void*, size_t)>("read");
  DelayRead(fd);
  return next(fd, bytes, count);
}

ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  static auto* const next = Next<ssize_t(int, void*, size_t, off_t)>("pread");
  DelayRead(fd);
  return next(fd, bytes, count, offset);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  if (IsFile(fd) && Fails([&] { next(fd, bytes, count / 2); })) return -1;
  return next(fd, bytes, count);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static auto* const next = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (IsFile(fd) && Fails([&] { next(fd, bytes, count / 2, offset); })) return -1;
  return next(fd, bytes, count, offset);
}

int fsync(int fd) {
  static auto* const next = Next<int(int)>("fsync");
  if (IsFile(fd) && Fails()) return -1;
  return next(fd);
}

int ftruncate(int fd, off_t length) noexcept {
  static auto* const next = Next<int(int, off_t)>("ftruncate");
  if (IsFile(fd) && Fails()) return -1;
  return next(fd, length);
}

int open(const char* path, int flags, ...) {
  static auto* const next = Next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  DelayLook(path);
  if ((flags & O_CREAT) != 0 && Fails()) return -1;
  return next(path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  static auto* const next = Next<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  DelayLook(path);
  if ((flags & O_CREAT) != 0 && Fails()) return -1;
  return next(directory, path, flags, mode);
}

int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  static auto* const next = Next<int(int, const char*, mode_t)>("mkdirat");
  if (Fails()) return -1;
  return next(directory, path, mode);
}

int renameat(int from, const char* name, int to, const char* new_name) noexcept {
  static auto* const next = Next<int(int, const char*, int, const char*)>("renameat");
  if (Fails()) return -1;
  return next(from, name, to, new_name);
}

int linkat(int from, const char* name, int to, const char* new_name, int flags) noexcept {
  static auto* const next = Next<int(int, const char*, int, const char*, int)>("linkat");
  if (Fails()) return -1;
  return next(from, name, to, new_name, flags);
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  static auto* const next = Next<int(int, const char*, int)>("unlinkat");
  if (Fails()) return -1;
  return next(directory, path, flags);
}

}  // extern "C"
