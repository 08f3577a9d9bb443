#include "runner/engine/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <system_error>

#include "api/base/file_descriptor.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kConfine = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kConfine = false;
#else
constexpr bool kConfine = true;
#endif
#else
constexpr bool kConfine = true;
#endif

// ---- system calls ----

using Filter = std::unique_ptr<void, decltype(&::seccomp_release)>;

// The system calls of a running engine: memory, threads, time, and the descriptors it has. Everything else is
// EPERM, which library code takes for "not allowed here" and bears.
constexpr std::initializer_list<int> kWorking = {
    // memory
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(mlock),
    SCMP_SYS(munlock),
    SCMP_SYS(mincore),
    SCMP_SYS(membarrier),
    // threads and signals
    SCMP_SYS(futex),
    SCMP_SYS(futex_waitv),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(get_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(tgkill),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_setaffinity),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(getcpu),
    // time and the machine
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrusage),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
    SCMP_SYS(getrandom),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    // descriptors that are open
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(fstat),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(sendmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(eventfd2),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(fcntl),
};

// The additional system calls for reading a model and setting up.
constexpr std::initializer_list<int> kReading = {
    SCMP_SYS(openat),
    SCMP_SYS(open),
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(fstatfs),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(getdents64),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd),
    SCMP_SYS(fadvise64),
    SCMP_SYS(readahead),
    SCMP_SYS(fallocate),
    SCMP_SYS(ftruncate),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(pwrite64),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(landlock_create_ruleset),
    SCMP_SYS(landlock_add_rule),
    SCMP_SYS(landlock_restrict_self),
    SCMP_SYS(seccomp),
    SCMP_SYS(prctl),
    SCMP_SYS(prlimit64),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(pipe2),
    SCMP_SYS(ioctl),
};

bool Allow(scmp_filter_ctx filter, std::initializer_list<int> calls) {
  bool all = true;
  for (const int call : calls) all = ::seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0) == 0 && all;
  return all;
}

// Threads yes, processes no. clone3 hides its flags in memory: the C library does without when it is not
// there.
bool AllowThreads(scmp_filter_ctx filter) {
  return ::seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)) == 0 &&
         ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
}

// Naming a thread is all that is left of prctl; of newfstatat, what fstat() is.
bool AllowNarrowly(scmp_filter_ctx filter) {
  return ::seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1, SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME)) ==
             0 &&
         ::seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 1,
                            SCMP_A3(SCMP_CMP_MASKED_EQ, AT_EMPTY_PATH, AT_EMPTY_PATH)) == 0;
}

void Seal(bool may_read) {
  const Filter filter(::seccomp_init(SCMP_ACT_ERRNO(EPERM)), ::seccomp_release);
  if (!filter) return;
  // Also the threads that run already.
  if (::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1) != 0) return;
  bool whole = Allow(filter.get(), kWorking) && AllowThreads(filter.get());
  whole = whole && (may_read ? Allow(filter.get(), kReading) : AllowNarrowly(filter.get()));
  if (whole) ::seccomp_load(filter.get());
}

// ---- files ----

constexpr uint64_t kReadFile = LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kReadTree = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kScratch =
    kReadTree | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
// Everything that the first version of Landlock knows.
constexpr uint64_t kHandled = (uint64_t{LANDLOCK_ACCESS_FS_MAKE_SYM} << 1) - 1;

class Rules {
 public:
  Rules() {
    const landlock_ruleset_attr attributes{.handled_access_fs = kHandled};
    fd_ = api::FileDescriptor(
        static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes), 0)));
  }

  // A missing path needs no rule.
  void Permit(const fs::path& path, uint64_t access) const {
    if (!fd_.valid()) return;
    const api::FileDescriptor at(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!at.valid()) return;
    std::error_code ec;
    const uint64_t meant =
        fs::is_directory(path, ec) ? access : access & (kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE);
    const landlock_path_beneath_attr rule{.allowed_access = meant, .parent_fd = at.get()};
    ::syscall(SYS_landlock_add_rule, fd_.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  }
  void Enforce() const {
    if (fd_.valid()) ::syscall(SYS_landlock_restrict_self, fd_.get(), 0);
  }

 private:
  api::FileDescriptor fd_;
};

// The runner must still die with its terminal and its daemon: the kernel resets that signal when credentials
// change.
void UnshareNamespaces() {
  const pid_t parent = ::getppid();
  int death_signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &death_signal);
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0) return;
  ::prctl(PR_SET_PDEATHSIG, death_signal);
  if (death_signal != 0 && ::getppid() != parent) std::_Exit(EXIT_FAILURE);
}

void OfferToDieFirst() {
  const api::FileDescriptor fd(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return;
  constexpr std::string_view kScore = "500";
  [[maybe_unused]] const ssize_t written = ::write(fd.get(), kScore.data(), kScore.size());
}

}  // namespace

void DropPrivileges() {
  OfferToDieFirst();
  // Read now: templates ask for the local time when no file can be read any more. With TZ set the C library
  // does not look again.
  ::setenv("TZ", ":/etc/localtime", /*overwrite=*/0);
  ::tzset();
  if (!kConfine) return;
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Root may read what belongs to others, but not from a namespace of its own.
  if (::geteuid() != 0) UnshareNamespaces();
  Seal(/*may_read=*/true);
}

void RestrictFileSystem(bool scratch, const fs::path& output) {
  if (!kConfine) return;
  const Rules rules;
  std::error_code ec;
  for (const char* path :
       {"/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/sys/fs/cgroup", "/sys/devices/system/cpu"}) {
    rules.Permit(path, kReadTree);
  }
  if (scratch) rules.Permit(fs::temp_directory_path(ec), kScratch);
  if (!output.empty()) rules.Permit(output, kScratch);
  rules.Enforce();
}

void DenyFileOpens() {
  if (kConfine) Seal(/*may_read=*/false);
}

}  // namespace quire::runner::engine
