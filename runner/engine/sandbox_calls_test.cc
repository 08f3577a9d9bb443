// System calls made from inside a confined runner, one row each. docs/security.md lists every row
// (House.SecurityDoc).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runner/engine/sandbox.h"
#include "runner/engine/testing/skip_confinement.h"
#include "runner/kernels/numa_plan.h"

namespace quire::runner::engine {
namespace {

constexpr int kOk = 0;
constexpr int kNotRun = -1;
constexpr int kDied = -2;  // the call ended the process

// What the calls refer to: made before the process is confined.
struct World {
  pid_t victim = -1;  // another process of the same user
  pid_t self = -1;
  int log = -1;  // a file that is open for writing, like an inherited log
  int pipe = -1;
  int socket = -1;  // like the link to the daemon
  void* page = nullptr;
};

struct Row {
  const char* name;
  int loading;  // expected errno, 0 = the call succeeds
  int working;
  std::function<long(const World&)> call;
};

template <class... Arguments>
long Call(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

std::vector<Row> SignalRows() {
  return {
      {"tgkill(other process)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_tgkill, w.victim, w.victim, SIGABRT); }},
      {"tgkill(own process, SIGKILL)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_tgkill, w.self, w.self, SIGKILL); }},
      {"tgkill(own process, SIGABRT)", kOk, kOk,
       [](const World& w) { return Call(SYS_tgkill, w.self, w.self, SIGABRT); }},
      {"tkill", EPERM, EPERM, [](const World& w) { return Call(SYS_tkill, w.victim, SIGABRT); }},
      {"kill(other process)", EPERM, EPERM, [](const World& w) { return Call(SYS_kill, w.victim, SIGTERM); }},
      {"kill(own process)", EPERM, EPERM, [](const World& w) { return Call(SYS_kill, w.self, 0); }},
      {"rt_sigqueueinfo", EPERM, EPERM,
       [](const World& w) {
         siginfo_t info{};
         info.si_code = SI_QUEUE;
         return Call(SYS_rt_sigqueueinfo, w.victim, SIGTERM, &info);
       }},
      {"rt_tgsigqueueinfo", EPERM, EPERM,
       [](const World& w) {
         siginfo_t info{};
         info.si_code = SI_QUEUE;
         return Call(SYS_rt_tgsigqueueinfo, w.victim, w.victim, SIGTERM, &info);
       }},
      {"pidfd_open", EPERM, EPERM, [](const World& w) { return Call(SYS_pidfd_open, w.victim, 0); }},
      {"fcntl(F_SETOWN)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_fcntl, w.pipe, F_SETOWN, w.victim); }},
      {"fcntl(F_SETSIG)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_fcntl, w.pipe, F_SETSIG, SIGKILL); }},
      {"fcntl(F_SETFL)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_fcntl, w.pipe, F_SETFL, O_ASYNC); }},
      {"fcntl(F_SETPIPE_SZ)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_fcntl, w.pipe, F_SETPIPE_SZ, 1 << 20); }},
      {"fcntl(F_GETFD)", kOk, kOk, [](const World& w) { return Call(SYS_fcntl, w.pipe, F_GETFD, 0); }},
      {"fcntl(F_GETFL)", kOk, kOk, [](const World& w) { return Call(SYS_fcntl, w.pipe, F_GETFL, 0); }},
      {"ioctl(FIOASYNC)", EPERM, EPERM,
       [](const World& w) {
         int on = 1;
         return Call(SYS_ioctl, w.pipe, FIOASYNC, &on);
       }},
      {"timer_create", EPERM, EPERM,
       [](const World&) {
         int timer = 0;
         return Call(SYS_timer_create, CLOCK_MONOTONIC, nullptr, &timer);
       }},
  };
}

std::vector<Row> ProcessRows() {
  return {
      {"sched_setaffinity(other process)", EPERM, EPERM,
       [](const World& w) {
         const unsigned long mask = 1;
         return Call(SYS_sched_setaffinity, w.victim, sizeof(mask), &mask);
       }},
      {"sched_setaffinity(0)", EPERM, EPERM,
       [](const World&) {
         const unsigned long mask = 1;
         return Call(SYS_sched_setaffinity, 0, sizeof(mask), &mask);
       }},
      {"sched_getaffinity(other process)", EPERM, EPERM,
       [](const World& w) {
         cpu_set_t set;
         return Call(SYS_sched_getaffinity, w.victim, sizeof(set), &set);
       }},
      {"sched_getaffinity(0)", kOk, kOk,
       [](const World&) {
         cpu_set_t set;
         return Call(SYS_sched_getaffinity, 0, sizeof(set), &set);
       }},
      {"sched_setscheduler", EPERM, EPERM,
       [](const World& w) {
         const sched_param param{};
         return Call(SYS_sched_setscheduler, w.victim, SCHED_IDLE, &param);
       }},
      {"sched_getparam(other process)", EPERM, EPERM,
       [](const World& w) {
         sched_param param{};
         return Call(SYS_sched_getparam, w.victim, &param);
       }},
      {"setpriority", EPERM, EPERM,
       [](const World& w) { return Call(SYS_setpriority, PRIO_PROCESS, w.victim, 19); }},
      {"get_robust_list(other process)", EPERM, EPERM,
       [](const World& w) {
         void* head = nullptr;
         size_t bytes = 0;
         return Call(SYS_get_robust_list, w.victim, &head, &bytes);
       }},
      {"prlimit64(other process)", EPERM, EPERM,
       [](const World& w) {
         rlimit limit{};
         return Call(SYS_prlimit64, w.victim, RLIMIT_NOFILE, nullptr, &limit);
       }},
      {"prlimit64(0, new limit)", EPERM, EPERM,
       [](const World&) {
         const rlimit limit{};
         return Call(SYS_prlimit64, 0, RLIMIT_CORE, &limit, nullptr);
       }},
      {"prlimit64(0, read)", kOk, kOk,
       [](const World&) {
         rlimit limit{};
         return Call(SYS_prlimit64, 0, RLIMIT_CORE, nullptr, &limit);
       }},
      {"ptrace", EPERM, EPERM, [](const World& w) { return Call(SYS_ptrace, 16, w.victim, 0, 0); }},
      {"process_vm_readv", EPERM, EPERM,
       [](const World& w) { return Call(SYS_process_vm_readv, w.victim, nullptr, 0, nullptr, 0, 0); }},
      {"process_vm_writev", EPERM, EPERM,
       [](const World& w) { return Call(SYS_process_vm_writev, w.victim, nullptr, 0, nullptr, 0, 0); }},
      {"clone(process)", EPERM, EPERM, [](const World&) { return Call(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
      {"clone(CLONE_THREAD+CLONE_NEWUSER)", EPERM, EPERM,
       [](const World&) {
         return Call(SYS_clone, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWUSER, 0, 0, 0, 0);
       }},
      {"clone3", ENOSYS, ENOSYS, [](const World&) { return Call(SYS_clone3, nullptr, 0); }},
      {"execve", EPERM, EPERM, [](const World&) { return Call(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"unshare", EPERM, EPERM, [](const World&) { return Call(SYS_unshare, CLONE_NEWNS); }},
      {"setns", EPERM, EPERM, [](const World& w) { return Call(SYS_setns, w.log, 0); }},
      {"prctl(PR_SET_PDEATHSIG)", EPERM, EPERM,
       [](const World&) { return Call(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0); }},
      {"prctl(PR_SET_DUMPABLE)", EPERM, EPERM,
       [](const World&) { return Call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }},
      {"prctl(PR_SET_NAME)", kOk, kOk,
       [](const World&) { return Call(SYS_prctl, PR_SET_NAME, "name", 0, 0, 0); }},
      {"setuid", EPERM, EPERM, [](const World&) { return Call(SYS_setuid, 0); }},
      {"capset", EPERM, EPERM, [](const World&) { return Call(SYS_capset, nullptr, nullptr); }},
  };
}

std::vector<Row> FileRows() {
  return {
      {"openat(/etc/passwd)", EACCES, EPERM,
       [](const World&) { return Call(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY); }},
      {"openat(/proc/meminfo)", kOk, EPERM,
       [](const World&) { return Call(SYS_openat, AT_FDCWD, "/proc/meminfo", O_RDONLY); }},
      {"openat(O_CREAT)", EPERM, EPERM,
       [](const World&) {
         return Call(SYS_openat, AT_FDCWD, "/tmp/quire-no-file", O_WRONLY | O_CREAT, 0600);
       }},
      {"openat2", EPERM, EPERM,
       [](const World&) {
         const std::array<uint64_t, 3> how{};
         return Call(SYS_openat2, AT_FDCWD, "/proc/meminfo", how.data(), sizeof(how));
       }},
#ifdef SYS_stat  // arm64 has none of these
      {"stat(path)", EPERM, EPERM,
       [](const World&) {
         struct stat status {};
         return Call(SYS_stat, "/etc/passwd", &status);
       }},
      {"access", EPERM, EPERM, [](const World&) { return Call(SYS_access, "/etc/passwd", R_OK); }},
      {"readlink", EPERM, EPERM,
       [](const World&) {
         std::array<char, 64> target{};
         return Call(SYS_readlink, "/proc/self/exe", target.data(), target.size());
       }},
      {"unlink", EPERM, EPERM, [](const World&) { return Call(SYS_unlink, "/tmp/quire-no-file"); }},
      {"rename", EPERM, EPERM, [](const World&) { return Call(SYS_rename, "/tmp/quire-a", "/tmp/quire-b"); }},
      {"mkdir", EPERM, EPERM, [](const World&) { return Call(SYS_mkdir, "/tmp/quire-no-folder", 0700); }},
      {"dup2", EPERM, EPERM, [](const World& w) { return Call(SYS_dup2, w.log, w.pipe); }},
#endif
      {"newfstatat(path)", EPERM, EPERM,
       [](const World&) {
         struct stat status {};
         return Call(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &status, 0);
       }},
      {"newfstatat(path, AT_EMPTY_PATH)", EPERM, EPERM,
       [](const World&) {
         struct stat status {};
         return Call(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &status, AT_EMPTY_PATH);
       }},
      {"statx(path)", EPERM, EPERM,
       [](const World&) {
         struct statx status {};
         return Call(SYS_statx, AT_FDCWD, "/etc/passwd", 0, STATX_SIZE, &status);
       }},
      {"fstat(descriptor)", kOk, kOk,
       [](const World& w) {
         struct stat status {};
         return Call(SYS_fstat, w.log, &status);
       }},
      {"statfs", EPERM, EPERM,
       [](const World&) {
         std::array<char, 256> status{};
         return Call(SYS_statfs, "/", status.data());
       }},
      {"faccessat", EPERM, EPERM,
       [](const World&) { return Call(SYS_faccessat, AT_FDCWD, "/etc/passwd", R_OK); }},
      {"getcwd", EPERM, EPERM,
       [](const World&) {
         std::array<char, 4096> folder{};
         return Call(SYS_getcwd, folder.data(), folder.size());
       }},
      {"chdir", EPERM, EPERM, [](const World&) { return Call(SYS_chdir, "/"); }},
      {"ftruncate(inherited file)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_ftruncate, w.log, 0); }},
      {"fallocate(inherited file)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_fallocate, w.log, 0, 0, 4096); }},
      {"mount", EPERM, EPERM,
       [](const World&) { return Call(SYS_mount, "none", "/nonexistent", "tmpfs", 0, nullptr); }},
      {"memfd_create", EPERM, EPERM, [](const World&) { return Call(SYS_memfd_create, "x", 0); }},
      {"name_to_handle_at", EPERM, EPERM,
       [](const World&) { return Call(SYS_name_to_handle_at, AT_FDCWD, "/", nullptr, nullptr, 0); }},
  };
}

std::vector<Row> MemoryRows() {
  return {
      {"mmap(PROT_READ+PROT_WRITE)", kOk, kOk,
       [](const World&) {
         return Call(SYS_mmap, nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       }},
      {"mmap(PROT_EXEC)", EPERM, EPERM,
       [](const World&) {
         return Call(SYS_mmap, nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       }},
      {"mprotect(PROT_EXEC)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_mprotect, w.page, 4096, PROT_READ | PROT_EXEC); }},
      {"mprotect(PROT_READ)", kOk, kOk,
       [](const World& w) { return Call(SYS_mprotect, w.page, 4096, PROT_READ | PROT_WRITE); }},
      {"pkey_mprotect", EPERM, EPERM,
       [](const World& w) { return Call(SYS_pkey_mprotect, w.page, 4096, PROT_READ, -1); }},
      {"madvise(MADV_DONTNEED)", kOk, kOk,
       [](const World& w) { return Call(SYS_madvise, w.page, 4096, MADV_DONTNEED); }},
      {"madvise(MADV_MERGEABLE)", EPERM, EPERM,
       [](const World& w) { return Call(SYS_madvise, w.page, 4096, MADV_MERGEABLE); }},
      {"mincore", EPERM, EPERM,
       [](const World& w) {
         unsigned char resident = 0;
         return Call(SYS_mincore, w.page, 4096, &resident);
       }},
      {"mlock", EPERM, EPERM, [](const World& w) { return Call(SYS_mlock, w.page, 4096); }},
      {"shmget", EPERM, EPERM, [](const World&) { return Call(SYS_shmget, 0, 4096, 0600); }},
  };
}

std::vector<Row> NetworkAndKernelRows() {
  return {
      {"socket(AF_INET)", EPERM, EPERM,
       [](const World&) { return Call(SYS_socket, AF_INET, SOCK_STREAM, 0); }},
      {"socket(AF_UNIX)", EPERM, EPERM,
       [](const World&) { return Call(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
      {"socketpair", EPERM, EPERM,
       [](const World&) {
         std::array<int, 2> pair{};
         return Call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair.data());
       }},
      {"connect", EPERM, EPERM,
       [](const World& w) {
         const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/x"};
         return Call(SYS_connect, w.socket, &address, sizeof(address));
       }},
      {"bind", EPERM, EPERM,
       [](const World& w) {
         const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = ""};
         return Call(SYS_bind, w.socket, &address, sizeof(address.sun_family));
       }},
      {"sendto(no address)", kOk, kOk,
       [](const World& w) { return Call(SYS_sendto, w.socket, "x", 1, MSG_DONTWAIT, nullptr, 0); }},
      {"sendto(address)", EPERM, EPERM,
       [](const World& w) {
         const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/x"};
         return Call(SYS_sendto, w.socket, "x", 1, MSG_DONTWAIT, &address, sizeof(address));
       }},
      {"sendmsg", EPERM, EPERM, [](const World& w) { return Call(SYS_sendmsg, w.socket, nullptr, 0); }},
      {"recvmsg", EPERM, EPERM, [](const World& w) { return Call(SYS_recvmsg, w.socket, nullptr, 0); }},
      {"setsockopt", EPERM, EPERM,
       [](const World& w) {
         const int on = 1;
         return Call(SYS_setsockopt, w.socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
       }},
      {"io_uring_setup", EPERM, EPERM, [](const World&) { return Call(SYS_io_uring_setup, 1, nullptr); }},
      {"perf_event_open", EPERM, EPERM,
       [](const World&) { return Call(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
      {"bpf", EPERM, EPERM, [](const World&) { return Call(SYS_bpf, 0, nullptr, 0); }},
      {"userfaultfd", EPERM, EPERM, [](const World&) { return Call(SYS_userfaultfd, 0); }},
      {"add_key", EPERM, EPERM,
       [](const World&) { return Call(SYS_add_key, nullptr, nullptr, nullptr, 0, 0); }},
      {"getrandom", kOk, kOk,
       [](const World&) {
         char byte = 0;
         return Call(SYS_getrandom, &byte, 1, 0);
       }},
  };
}

std::vector<Row> AllRows() {
  std::vector<Row> all;
  for (std::vector<Row> rows :
       {SignalRows(), ProcessRows(), FileRows(), MemoryRows(), NetworkAndKernelRows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

constexpr uid_t kNobody = 65534;

class SandboxCalls : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    QUIRE_SKIP_WITH_SANITIZER();
    if (GetParam() && ::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  }

  static bool HasLandlock() {
    return ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
  }

  static void BecomeNobody() {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
  }

  // Another process of the same user, which waits to be killed.
  static pid_t StartVictim(bool as_nobody) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (as_nobody) BecomeNobody();
      while (true) ::pause();
    }
    return pid;
  }

  // In the child: the errno of each row, or 0.
  static void RunRows(const std::vector<Row>& rows, size_t first, bool working, bool as_nobody, pid_t victim,
                      std::span<int> results) {
    World world;
    world.victim = victim;
    world.log = ::memfd_create("log", MFD_CLOEXEC);
    std::array<int, 2> pair{};
    if (::pipe2(pair.data(), O_CLOEXEC) != 0) return;
    world.pipe = pair[1];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return;
    world.socket = pair[0];
    world.page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::signal(SIGABRT, SIG_IGN);
    if (as_nobody) BecomeNobody();
    world.self = ::getpid();
    static_cast<void>(DropPrivileges());
    static_cast<void>(RestrictFileSystem({}));
    if (working) static_cast<void>(DenyFileOpens());
    for (size_t i = first; i < rows.size(); ++i) results[i] = rows[i].call(world) == -1 ? errno : kOk;
  }

  static void RunInChild(const std::function<void()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
  }

  static void Check(bool working, bool as_nobody) {
    const std::vector<Row> rows = AllRows();
    const size_t bytes = rows.size() * sizeof(int);
    void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    const std::span<int> results(static_cast<int*>(shared), rows.size());
    std::ranges::fill(results, kNotRun);
    const pid_t victim = StartVictim(as_nobody);
    ASSERT_GT(victim, 0);
    // The rows behind one that ends its process run in another.
    for (size_t first = 0; first < rows.size();) {
      RunInChild([&] { RunRows(rows, first, working, as_nobody, victim, results); });
      const auto not_run = std::ranges::find(results, kNotRun);
      if (not_run != results.end()) *not_run = kDied;
      first = static_cast<size_t>(not_run - results.begin()) + 1;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const int expected = working ? rows[i].working : rows[i].loading;
      if (expected == EACCES && !HasLandlock()) continue;
      EXPECT_EQ(results[i], expected) << rows[i].name << (working ? " at work" : " while loading");
    }
    EXPECT_EQ(::waitpid(victim, nullptr, WNOHANG), 0) << "the other process was killed";
    ::kill(victim, SIGKILL);
    ::waitpid(victim, nullptr, 0);
    ::munmap(shared, bytes);
  }
};

TEST_P(SandboxCalls, WhileLoading) { Check(/*working=*/false, GetParam()); }

TEST_P(SandboxCalls, AtWork) { Check(/*working=*/true, GetParam()); }

// On several NUMA nodes a runner's threads pin themselves: the one call that is then allowed in addition.
TEST_P(SandboxCalls, OnSeveralNodesAThreadPinsItselfAlone) {
  void* const shared =
      ::mmap(nullptr, 2 * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const std::span<int> results(static_cast<int*>(shared), 2);
  std::ranges::fill(results, kNotRun);
  const pid_t victim = StartVictim(GetParam());
  RunInChild([&] {
    NumaPlan plan;
    plan.nodes.resize(2);
    SetNumaPlan(plan);
    cpu_set_t set;
    ::sched_getaffinity(0, sizeof(set), &set);
    if (GetParam()) BecomeNobody();
    static_cast<void>(DropPrivileges());
    static_cast<void>(RestrictFileSystem({}));
    static_cast<void>(DenyFileOpens());
    results[0] = Call(SYS_sched_setaffinity, 0, sizeof(set), &set) == -1 ? errno : kOk;
    results[1] = Call(SYS_sched_setaffinity, victim, sizeof(set), &set) == -1 ? errno : kOk;
  });
  EXPECT_EQ(results[0], kOk);
  EXPECT_EQ(results[1], EPERM);
  ::kill(victim, SIGKILL);
  ::waitpid(victim, nullptr, 0);
  ::munmap(shared, 2 * sizeof(int));
}

INSTANTIATE_TEST_SUITE_P(Users, SandboxCalls, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Nobody" : "SameUser"; });

}  // namespace
}  // namespace quire::runner::engine
