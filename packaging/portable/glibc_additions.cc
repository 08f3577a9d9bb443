// Symbols of newer C libraries that the programs and static libraries of Debian 12 refer to, for programs
// that are linked against glibc 2.31 (sysroot.sh) and refer to no symbol newer than 2.28. Compiled against
// the headers of Debian 12, part of portable programs only.
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>

extern "C" {

#include <sys/pidfd.h>  // says nothing of linkage before glibc 2.37

// glibc 2.32. libstdc++ uses atomic operations unless it is nonzero.
char __libc_single_threaded = 0;  // NOLINT: the C library's name

// glibc 2.36. libstdc++'s std::random_device.
uint32_t arc4random() {
  uint32_t value = 0;
  size_t filled = 0;
  while (filled < sizeof(value)) {
    const ssize_t got = ::getrandom(reinterpret_cast<char*>(&value) + filled, sizeof(value) - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
    if (got < 0 && errno != EINTR) std::abort();
  }
  return value;
}

namespace {

struct Search {
  uintptr_t address;
  dl_find_object* found;
};

// Whether `object` holds the address; then `found` describes it.
int FindInObject(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const ElfW(Phdr)* frames = nullptr;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  bool holds = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    const uintptr_t from = object->dlpi_addr + header.p_vaddr, to = from + header.p_memsz;
    if (header.p_type == PT_GNU_EH_FRAME) frames = &header;
    if (header.p_type != PT_LOAD) continue;
    if (from < begin) begin = from;
    if (to > end) end = to;
    holds = holds || (search.address >= from && search.address < to);
  }
  if (!holds || frames == nullptr) return 0;
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

}  // namespace

// glibc 2.35. libgcc looks here for the tables that exceptions are unwound with.
int _dl_find_object(void* address, dl_find_object* found) {  // NOLINT: the C library's name
  *found = {};
  Search search{reinterpret_cast<uintptr_t>(address), found};
  return ::dl_iterate_phdr(FindInObject, &search) == 1 ? 0 : -1;
}

// glibc 2.36. -1 with ENOSYS before Linux 5.3.
int pidfd_open(pid_t pid, unsigned flags) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, flags));
}

// glibc 2.36.
int pidfd_send_signal(int pidfd, int signal, siginfo_t* info, unsigned flags) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd, signal, info, flags));
}

// glibc 2.34. Called between fork and exec: nothing is allocated. Linux before 5.9 has no close_range.
void closefrom(int lowest) noexcept {
  const int first = lowest < 0 ? 0 : lowest;
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t{1} << 20);
  const int end = known ? static_cast<int>(limit.rlim_cur) : 1 << 20;
  for (int fd = first; fd < end; ++fd) ::close(fd);
}

// glibc 2.30. The C library's own where it has one; older ones wait by the time of day alone, which may be
// changed meanwhile: a wait ends after a second at the latest, as any wait for a condition may.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto newer =
      reinterpret_cast<decltype(&pthread_cond_clockwait)>(::dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  if (newer != nullptr) return newer(condition, mutex, clock, until);
  constexpr int64_t kSecond = 1'000'000'000;
  const auto nanoseconds = [](const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; };
  timespec now{};
  if (::clock_gettime(clock, &now) != 0) return EINVAL;
  const int64_t left = until->tv_sec - now.tv_sec > 1 ? kSecond + 1 : nanoseconds(*until) - nanoseconds(now);
  ::clock_gettime(CLOCK_REALTIME, &now);
  const int64_t end = nanoseconds(now) + std::clamp<int64_t>(left, 0, kSecond);
  const timespec end_of_wait{.tv_sec = end / kSecond, .tv_nsec = end % kSecond};
  const int result = ::pthread_cond_timedwait(condition, mutex, &end_of_wait);
  return result == ETIMEDOUT && left > kSecond ? 0 : result;
}

// glibc 2.33. The C library's own where it has one; else its older form, whose counts wrap at 4 GiB.
struct mallinfo2 mallinfo2() noexcept {
  static const auto newer = reinterpret_cast<struct mallinfo2 (*)()>(::dlsym(RTLD_NEXT, "mallinfo2"));
  if (newer != nullptr) return newer();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo older = ::mallinfo();
#pragma GCC diagnostic pop
  const auto count = [](int value) { return size_t{static_cast<unsigned>(value)}; };
  return {count(older.arena),    count(older.ordblks), count(older.smblks),  count(older.hblks),
          count(older.hblkhd),   count(older.usmblks), count(older.fsmblks), count(older.uordblks),
          count(older.fordblks), count(older.keepcost)};
}

// glibc 2.32. "SEGV", or null.
const char* sigabbrev_np(int signal) noexcept {
  switch (signal) {
#define QUIRE_SIGNAL(name) \
  case SIG##name:          \
    return #name;
    QUIRE_SIGNAL(HUP)
    QUIRE_SIGNAL(INT)
    QUIRE_SIGNAL(QUIT)
    QUIRE_SIGNAL(ILL)
    QUIRE_SIGNAL(TRAP)
    QUIRE_SIGNAL(ABRT)
    QUIRE_SIGNAL(BUS)
    QUIRE_SIGNAL(FPE)
    QUIRE_SIGNAL(KILL)
    QUIRE_SIGNAL(USR1)
    QUIRE_SIGNAL(SEGV)
    QUIRE_SIGNAL(USR2)
    QUIRE_SIGNAL(PIPE)
    QUIRE_SIGNAL(ALRM)
    QUIRE_SIGNAL(TERM)
    QUIRE_SIGNAL(STKFLT)
    QUIRE_SIGNAL(CHLD)
    QUIRE_SIGNAL(CONT)
    QUIRE_SIGNAL(STOP)
    QUIRE_SIGNAL(TSTP)
    QUIRE_SIGNAL(TTIN)
    QUIRE_SIGNAL(TTOU)
    QUIRE_SIGNAL(URG)
    QUIRE_SIGNAL(XCPU)
    QUIRE_SIGNAL(XFSZ)
    QUIRE_SIGNAL(VTALRM)
    QUIRE_SIGNAL(PROF)
    QUIRE_SIGNAL(WINCH)
    QUIRE_SIGNAL(POLL)
    QUIRE_SIGNAL(PWR)
    QUIRE_SIGNAL(SYS)
#undef QUIRE_SIGNAL
    default:
      return nullptr;
  }
}

}  // extern "C"
