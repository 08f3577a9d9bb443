#include "runner/engine/process/syscall_filter.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <initializer_list>
#include <memory>

#include "runner/kernels/numa_plan.h"

namespace quire::runner::engine {
namespace {

// What the C library passes for a thread.
constexpr uint64_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                                  CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;

// Memory, threads, time, and the descriptors that are open, whatever the arguments.
constexpr std::initializer_list<int> kAlways = {
    // memory
    SCMP_SYS(brk),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    // threads and signals
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(sched_yield),
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
};

// Advice that allocators and caches give. None of it concerns another process or the whole machine.
constexpr std::initializer_list<uint64_t> kAdvice = {MADV_NORMAL,   MADV_RANDOM,    MADV_SEQUENTIAL,
                                                     MADV_WILLNEED, MADV_DONTNEED,  MADV_FREE,
                                                     MADV_HUGEPAGE, MADV_NOHUGEPAGE};

// Signals by which a process reports its own fault: abort() and the crash handler send them.
constexpr std::initializer_list<uint64_t> kFaultSignals = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE,
                                                           SIGILL,  SIGTRAP, SIGSYS};

// Nice values that threads give themselves, at least and at most.
constexpr int kNiceMin = 5;
constexpr int kNiceMax = 19;

// Collects rules; the first error of the library stays.
class Builder {
 public:
  // For the machine's own architecture, or for `architecture` alone.
  explicit Builder(uint32_t architecture)
      : filter_(::seccomp_init(SCMP_ACT_ERRNO(EPERM)), ::seccomp_release) {
    if (!filter_) return;
    if (const uint32_t own = ::seccomp_arch_native(); architecture != own) {
      Check(::seccomp_arch_add(filter_.get(), architecture));
      Check(::seccomp_arch_remove(filter_.get(), own));
    }
    // Also the threads that run already; the reason of a failure is the kernel's.
    Check(::seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_TSYNC, 1));
    Check(::seccomp_attr_set(filter_.get(), SCMP_FLTATR_API_SYSRAWRC, 1));
  }

  void Allow(std::initializer_list<int> calls) {
    for (const int call : calls) Allow(call, {});
  }
  // Allowed when all comparisons hold.
  void Allow(int call, std::initializer_list<scmp_arg_cmp> arguments) {
    Add(SCMP_ACT_ALLOW, call, arguments);
  }
  void Add(uint32_t action, int call, std::initializer_list<scmp_arg_cmp> arguments) {
    if (!filter_) return;
    Check(::seccomp_rule_add_array(filter_.get(), action, call, static_cast<unsigned>(arguments.size()),
                                   arguments.begin()));
  }
  int Load() const {
    if (!filter_) return ENOMEM;
    return error_ != 0 ? error_ : -::seccomp_load(filter_.get());
  }
  int Export(int descriptor) const {
    if (!filter_) return ENOMEM;
    return error_ != 0 ? error_ : -::seccomp_export_bpf(filter_.get(), descriptor);
  }

 private:
  void Check(int result) {
    if (result != 0 && error_ == 0) error_ = -result;
  }

  std::unique_ptr<void, decltype(&::seccomp_release)> filter_;
  int error_ = 0;
};

void AllowMemory(Builder& filter) {
  filter.Allow(SCMP_SYS(mmap), {SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)});
  filter.Allow(SCMP_SYS(mprotect), {SCMP_A2_64(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)});
  for (const uint64_t advice : kAdvice) filter.Allow(SCMP_SYS(madvise), {SCMP_A2_32(SCMP_CMP_EQ, advice)});
}

void AllowOwnProcess(Builder& filter) {
  filter.Add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), {});
  const auto self = static_cast<uint64_t>(::getpid());
  for (const uint64_t fault : kFaultSignals) {
    filter.Allow(SCMP_SYS(tgkill), {SCMP_A0_32(SCMP_CMP_EQ, self), SCMP_A2_32(SCMP_CMP_EQ, fault)});
  }
  filter.Allow(SCMP_SYS(sched_getaffinity), {SCMP_A0_32(SCMP_CMP_EQ, 0)});
  // Threads of pools pin themselves; where none does, a runner keeps what taskset gave the daemon.
  if (CurrentNumaPlan().spreads()) {
    filter.Allow(SCMP_SYS(sched_setaffinity), {SCMP_A0_32(SCMP_CMP_EQ, 0)});
  }
  filter.Allow(SCMP_SYS(prlimit64), {SCMP_A0_32(SCMP_CMP_EQ, 0), SCMP_A2_64(SCMP_CMP_EQ, 0)});
  filter.Allow(SCMP_SYS(prctl), {SCMP_A0_32(SCMP_CMP_EQ, PR_SET_NAME)});
}

// All threads of a runner at work were started before: engine, link, preparation, and a pool of compute
// threads. More of them would only take those that the service may have.
void AllowThreads(Builder& filter) { filter.Allow(SCMP_SYS(clone), {SCMP_A0_64(SCMP_CMP_EQ, kThreadFlags)}); }

void AllowDescriptors(Builder& filter) {
  for (const int command : {F_GETFD, F_GETFL}) {
    filter.Allow(SCMP_SYS(fcntl), {SCMP_A1_32(SCMP_CMP_EQ, static_cast<uint64_t>(command))});
  }
  // recv() and send(), as the links call them: no address, no control messages, and no urgent data, by which
  // confined processes have broken into the kernel (CVE-2025-38236).
  filter.Allow(SCMP_SYS(recvfrom), {SCMP_A3_32(SCMP_CMP_EQ, MSG_DONTWAIT), SCMP_A4_64(SCMP_CMP_EQ, 0)});
  filter.Allow(SCMP_SYS(sendto),
               {SCMP_A3_32(SCMP_CMP_EQ, MSG_DONTWAIT | MSG_NOSIGNAL), SCMP_A4_64(SCMP_CMP_EQ, 0)});
}

// Threads give themselves a lower priority: those of an encoder, and those of long preparations. None gets
// one above `own`. Priorities are nice values: more is less.
void AllowLowerPriority(Builder& filter, int own) {
  for (int nice = std::max(own, kNiceMin); nice <= kNiceMax; ++nice) {
    filter.Allow(SCMP_SYS(setpriority), {SCMP_A0_32(SCMP_CMP_EQ, PRIO_PROCESS), SCMP_A1_32(SCMP_CMP_EQ, 0),
                                         SCMP_A2_32(SCMP_CMP_EQ, static_cast<uint64_t>(nice))});
  }
}

void AllowLoading(Builder& filter, int own_nice) {
  AllowLowerPriority(filter, own_nice);
  // The next filter.
  filter.Allow({SCMP_SYS(seccomp)});
  filter.Allow(SCMP_SYS(prctl), {SCMP_A0_32(SCMP_CMP_EQ, PR_SET_NO_NEW_PRIVS)});
}

void AllowWriting(Builder& filter) {
  filter.Allow({SCMP_SYS(fallocate), SCMP_SYS(pwrite64), SCMP_SYS(fsync), SCMP_SYS(fdatasync)});
}

// The threads of a runner, the files that it reads and creates, and Landlock.
void AllowSetUp(Builder& filter) {
  filter.Allow({SCMP_SYS(eventfd2), SCMP_SYS(openat), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
                SCMP_SYS(landlock_create_ruleset), SCMP_SYS(landlock_restrict_self)});
}

Builder FilterOf(FilterPhase phase, uint32_t architecture) {
  Builder filter(architecture);
  filter.Allow(kAlways);
  AllowMemory(filter);
  AllowOwnProcess(filter);
  AllowDescriptors(filter);
  if (phase != FilterPhase::kWorking) AllowThreads(filter);
  if (phase == FilterPhase::kWriting || phase == FilterPhase::kSetUp) AllowWriting(filter);
  if (phase == FilterPhase::kWriting || phase == FilterPhase::kLoading) AllowLoading(filter, kNiceMin);
  if (phase == FilterPhase::kSetUp) {
    // This filter stays, so what it refuses the later ones need not.
    AllowLoading(filter, ::getpriority(PRIO_PROCESS, 0));
    AllowSetUp(filter);
  }
  return filter;
}

}  // namespace

int LoadSyscallFilter(FilterPhase phase) { return FilterOf(phase, ::seccomp_arch_native()).Load(); }

int ExportSyscallFilter(FilterPhase phase, uint32_t architecture, int descriptor) {
  return FilterOf(phase, architecture).Export(descriptor);
}

}  // namespace quire::runner::engine
