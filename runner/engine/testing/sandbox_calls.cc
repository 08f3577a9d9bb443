#include "runner/engine/testing/sandbox_calls.h"

#include <fcntl.h>
#include <pthread.h>
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
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <utility>

namespace quire::runner::engine {
namespace {

template <class... Arguments>
long Call(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

std::vector<SandboxCall> SignalRows() {
  return {
      {"tgkill(other process)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_tgkill, w.victim, w.victim, SIGABRT); }},
      {"tgkill(own process, SIGKILL)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_tgkill, w.self, w.self, SIGKILL); }},
      {"tgkill(own process, SIGABRT)", kOk, kOk,
       [](const CallArguments& w) { return Call(SYS_tgkill, w.self, w.self, SIGABRT); }},
      {"tkill", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_tkill, w.victim, SIGABRT); }},
      {"kill(other process)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_kill, w.victim, SIGTERM); }},
      {"kill(own process)", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_kill, w.self, 0); }},
      {"rt_sigqueueinfo", EPERM, EPERM,
       [](const CallArguments& w) {
         siginfo_t info{};
         info.si_code = SI_QUEUE;
         return Call(SYS_rt_sigqueueinfo, w.victim, SIGTERM, &info);
       }},
      {"rt_tgsigqueueinfo", EPERM, EPERM,
       [](const CallArguments& w) {
         siginfo_t info{};
         info.si_code = SI_QUEUE;
         return Call(SYS_rt_tgsigqueueinfo, w.victim, w.victim, SIGTERM, &info);
       }},
      {"pidfd_open", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_pidfd_open, w.victim, 0); }},
      {"fcntl(F_SETOWN)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_fcntl, w.pipe, F_SETOWN, w.victim); }},
      {"fcntl(F_SETSIG)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_fcntl, w.pipe, F_SETSIG, SIGKILL); }},
      {"fcntl(F_SETFL)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_fcntl, w.pipe, F_SETFL, O_ASYNC); }},
      {"fcntl(F_SETPIPE_SZ)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_fcntl, w.pipe, F_SETPIPE_SZ, 1 << 20); }},
      {"fcntl(F_GETFD)", kOk, kOk,
       [](const CallArguments& w) { return Call(SYS_fcntl, w.pipe, F_GETFD, 0); }},
      {"fcntl(F_GETFL)", kOk, kOk,
       [](const CallArguments& w) { return Call(SYS_fcntl, w.pipe, F_GETFL, 0); }},
      {"ioctl(FIOASYNC)", EPERM, EPERM,
       [](const CallArguments& w) {
         int on = 1;
         return Call(SYS_ioctl, w.pipe, FIOASYNC, &on);
       }},
      {"timer_create", EPERM, EPERM,
       [](const CallArguments&) {
         int timer = 0;
         return Call(SYS_timer_create, CLOCK_MONOTONIC, nullptr, &timer);
       }},
  };
}

std::vector<SandboxCall> ProcessRows() {
  return {
      {"sched_setaffinity(other process)", EPERM, EPERM,
       [](const CallArguments& w) {
         const unsigned long mask = 1;
         return Call(SYS_sched_setaffinity, w.victim, sizeof(mask), &mask);
       }},
      {"sched_setaffinity(0)", EPERM, EPERM,
       [](const CallArguments&) {
         const unsigned long mask = 1;
         return Call(SYS_sched_setaffinity, 0, sizeof(mask), &mask);
       }},
      {"sched_getaffinity(other process)", EPERM, EPERM,
       [](const CallArguments& w) {
         cpu_set_t set;
         return Call(SYS_sched_getaffinity, w.victim, sizeof(set), &set);
       }},
      {"sched_getaffinity(0)", kOk, kOk,
       [](const CallArguments&) {
         cpu_set_t set;
         return Call(SYS_sched_getaffinity, 0, sizeof(set), &set);
       }},
      {"sched_setscheduler", EPERM, EPERM,
       [](const CallArguments& w) {
         const sched_param param{};
         return Call(SYS_sched_setscheduler, w.victim, SCHED_IDLE, &param);
       }},
      {"sched_getparam(other process)", EPERM, EPERM,
       [](const CallArguments& w) {
         sched_param param{};
         return Call(SYS_sched_getparam, w.victim, &param);
       }},
      {"setpriority(0, 19)", kOk, EPERM,
       [](const CallArguments&) { return Call(SYS_setpriority, PRIO_PROCESS, 0, 19); }},
      {"setpriority(0, 0)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_setpriority, PRIO_PROCESS, 0, 0); }},
      {"setpriority(0, -20)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_setpriority, PRIO_PROCESS, 0, -20); }},
      {"setpriority(other process)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_setpriority, PRIO_PROCESS, w.victim, 19); }},
      {"setpriority(process group)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_setpriority, PRIO_PGRP, 0, 19); }},
      {"setpriority(user)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_setpriority, PRIO_USER, 0, 19); }},
      {"getpriority(other process)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_getpriority, PRIO_PROCESS, w.victim); }},
      {"get_robust_list(other process)", EPERM, EPERM,
       [](const CallArguments& w) {
         void* head = nullptr;
         size_t bytes = 0;
         return Call(SYS_get_robust_list, w.victim, &head, &bytes);
       }},
      {"prlimit64(other process)", EPERM, EPERM,
       [](const CallArguments& w) {
         rlimit limit{};
         return Call(SYS_prlimit64, w.victim, RLIMIT_NOFILE, nullptr, &limit);
       }},
      {"prlimit64(0, new limit)", EPERM, EPERM,
       [](const CallArguments&) {
         const rlimit limit{};
         return Call(SYS_prlimit64, 0, RLIMIT_CORE, &limit, nullptr);
       }},
      {"prlimit64(0, read)", kOk, kOk,
       [](const CallArguments&) {
         rlimit limit{};
         return Call(SYS_prlimit64, 0, RLIMIT_CORE, nullptr, &limit);
       }},
      {"ptrace", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_ptrace, 16, w.victim, 0, 0); }},
      {"process_vm_readv", EPERM, EPERM,
       [](const CallArguments& w) {
         return Call(SYS_process_vm_readv, w.victim, nullptr, 0, nullptr, 0, 0);
       }},
      {"process_vm_writev", EPERM, EPERM,
       [](const CallArguments& w) {
         return Call(SYS_process_vm_writev, w.victim, nullptr, 0, nullptr, 0, 0);
       }},
      {"clone(thread)", kOk, EPERM,
       [](const CallArguments&) -> long {
         pthread_t thread{};
         errno = ::pthread_create(
             &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
         return errno == 0 ? ::pthread_join(thread, nullptr) : -1;
       }},
      {"clone(process)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
      {"clone(CLONE_THREAD+CLONE_NEWUSER)", EPERM, EPERM,
       [](const CallArguments&) {
         return Call(SYS_clone, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWUSER, 0, 0, 0, 0);
       }},
      {"clone3", ENOSYS, ENOSYS, [](const CallArguments&) { return Call(SYS_clone3, nullptr, 0); }},
      {"execve", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"unshare", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_unshare, CLONE_NEWNS); }},
      {"setns", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_setns, w.log, 0); }},
      {"prctl(PR_SET_PDEATHSIG)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0); }},
      {"prctl(PR_SET_DUMPABLE)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }},
      {"prctl(PR_SET_NAME)", kOk, kOk,
       [](const CallArguments&) { return Call(SYS_prctl, PR_SET_NAME, "name", 0, 0, 0); }},
      {"setuid", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_setuid, 0); }},
      {"capset", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_capset, nullptr, nullptr); }},
  };
}

std::vector<SandboxCall> FileRows() {
  return {
      {"openat(/etc/passwd)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY); }},
      {"openat(O_PATH)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_openat, AT_FDCWD, "/etc/shadow", O_PATH); }},
      {"openat(no such file)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_openat, AT_FDCWD, "/etc/quire-no-file", O_RDONLY); }},
      {"openat(/proc/meminfo)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_openat, AT_FDCWD, "/proc/meminfo", O_RDONLY); }},
      {"openat(O_CREAT)", EPERM, EPERM,
       [](const CallArguments&) {
         return Call(SYS_openat, AT_FDCWD, "/tmp/quire-no-file", O_WRONLY | O_CREAT, 0600);
       }},
      {"openat(O_TMPFILE)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_openat, AT_FDCWD, "/tmp", O_RDWR | O_TMPFILE, 0600); }},
      {"openat2", EPERM, EPERM,
       [](const CallArguments&) {
         const std::array<uint64_t, 3> how{};
         return Call(SYS_openat2, AT_FDCWD, "/proc/meminfo", how.data(), sizeof(how));
       }},
#ifdef SYS_stat  // arm64 has none of these
      {"stat(path)", EPERM, EPERM,
       [](const CallArguments&) {
         struct stat status {};
         return Call(SYS_stat, "/etc/passwd", &status);
       }},
      {"open", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_open, "/etc/passwd", O_PATH); }},
      {"lstat(no such file)", EPERM, EPERM,
       [](const CallArguments&) {
         struct stat status {};
         return Call(SYS_lstat, "/etc/quire-no-file", &status);
       }},
      {"access", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_access, "/etc/passwd", R_OK); }},
      {"readlink", EPERM, EPERM,
       [](const CallArguments&) {
         std::array<char, 64> target{};
         return Call(SYS_readlink, "/proc/self/exe", target.data(), target.size());
       }},
      {"unlink", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_unlink, "/tmp/quire-no-file"); }},
      {"rename", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_rename, "/tmp/quire-a", "/tmp/quire-b"); }},
      {"mkdir", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_mkdir, "/tmp/quire-no-folder", 0700); }},
      {"dup2", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_dup2, w.log, w.pipe); }},
#endif
      {"newfstatat(path)", EPERM, EPERM,
       [](const CallArguments&) {
         struct stat status {};
         return Call(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &status, 0);
       }},
      {"newfstatat(path, AT_EMPTY_PATH)", EPERM, EPERM,
       [](const CallArguments&) {
         struct stat status {};
         return Call(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &status, AT_EMPTY_PATH);
       }},
      {"newfstatat(no such file, AT_EMPTY_PATH)", EPERM, EPERM,
       [](const CallArguments&) {
         struct stat status {};
         return Call(SYS_newfstatat, AT_FDCWD, "/etc/quire-no-file", &status, AT_EMPTY_PATH);
       }},
      {"newfstatat(descriptor, AT_EMPTY_PATH)", EPERM, EPERM,
       [](const CallArguments& w) {
         struct stat status {};
         return Call(SYS_newfstatat, w.log, "", &status, AT_EMPTY_PATH);
       }},
      {"statx(path)", EPERM, EPERM,
       [](const CallArguments&) {
         struct statx status {};
         return Call(SYS_statx, AT_FDCWD, "/etc/passwd", 0, STATX_SIZE, &status);
       }},
      {"statx(path, AT_EMPTY_PATH)", EPERM, EPERM,
       [](const CallArguments&) {
         struct statx status {};
         return Call(SYS_statx, AT_FDCWD, "/etc/passwd", AT_EMPTY_PATH, STATX_SIZE, &status);
       }},
      {"fstat(descriptor)", kOk, kOk,
       [](const CallArguments& w) {
         struct stat status {};
         return Call(SYS_fstat, w.log, &status);
       }},
      {"statfs", EPERM, EPERM,
       [](const CallArguments&) {
         std::array<char, 256> status{};
         return Call(SYS_statfs, "/", status.data());
       }},
      {"faccessat", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_faccessat, AT_FDCWD, "/etc/passwd", R_OK); }},
      {"faccessat2", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_faccessat2, AT_FDCWD, "/etc/quire-no-file", R_OK, 0); }},
      {"readlinkat", EPERM, EPERM,
       [](const CallArguments&) {
         std::array<char, 64> target{};
         return Call(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", target.data(), target.size());
       }},
      {"getxattr", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_getxattr, "/etc/passwd", "user.x", nullptr, 0); }},
      {"utimensat", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_utimensat, AT_FDCWD, "/etc/quire-no-file", nullptr, 0); }},
      {"inotify_init1", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_inotify_init1, 0); }},
      {"open_by_handle_at", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_open_by_handle_at, AT_FDCWD, nullptr, O_PATH); }},
      {"unlinkat", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_unlinkat, AT_FDCWD, "/tmp/quire-no-file", 0); }},
      {"linkat", EPERM, EPERM,
       [](const CallArguments& w) {
         return Call(SYS_linkat, w.log, "", AT_FDCWD, "/tmp/quire-no-file", AT_EMPTY_PATH);
       }},
      {"getcwd", EPERM, EPERM,
       [](const CallArguments&) {
         std::array<char, 4096> folder{};
         return Call(SYS_getcwd, folder.data(), folder.size());
       }},
      {"chdir", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_chdir, "/"); }},
      {"ftruncate(inherited file)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_ftruncate, w.log, 0); }},
      {"fallocate(inherited file)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_fallocate, w.log, 0, 0, 4096); }, kOk},
      {"pwrite64(inherited file)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_pwrite64, w.log, "x", 1, 0); }, kOk},
      {"fsync(inherited file)", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_fsync, w.log); },
       kOk},
      {"mount", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_mount, "none", "/nonexistent", "tmpfs", 0, nullptr); }},
      {"memfd_create", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_memfd_create, "x", 0); }},
      {"name_to_handle_at", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_name_to_handle_at, AT_FDCWD, "/", nullptr, nullptr, 0); }},
  };
}

std::vector<SandboxCall> MemoryRows() {
  return {
      {"mmap(PROT_READ+PROT_WRITE)", kOk, kOk,
       [](const CallArguments&) {
         return Call(SYS_mmap, nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       }},
      {"mmap(PROT_EXEC)", EPERM, EPERM,
       [](const CallArguments&) {
         return Call(SYS_mmap, nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       }},
      {"mprotect(PROT_EXEC)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_mprotect, w.page, 4096, PROT_READ | PROT_EXEC); }},
      {"mprotect(PROT_READ)", kOk, kOk,
       [](const CallArguments& w) { return Call(SYS_mprotect, w.page, 4096, PROT_READ | PROT_WRITE); }},
      {"pkey_mprotect", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_pkey_mprotect, w.page, 4096, PROT_READ, -1); }},
      {"madvise(MADV_DONTNEED)", kOk, kOk,
       [](const CallArguments& w) { return Call(SYS_madvise, w.page, 4096, MADV_DONTNEED); }},
      {"madvise(MADV_MERGEABLE)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_madvise, w.page, 4096, MADV_MERGEABLE); }},
      {"mincore", EPERM, EPERM,
       [](const CallArguments& w) {
         unsigned char resident = 0;
         return Call(SYS_mincore, w.page, 4096, &resident);
       }},
      {"mlock", EPERM, EPERM, [](const CallArguments& w) { return Call(SYS_mlock, w.page, 4096); }},
      {"shmget", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_shmget, 0, 4096, 0600); }},
  };
}

constexpr int kSend = MSG_DONTWAIT | MSG_NOSIGNAL;

std::vector<SandboxCall> NetworkAndKernelRows() {
  return {
      {"socket(AF_INET)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_socket, AF_INET, SOCK_STREAM, 0); }},
      {"socket(AF_UNIX)", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
      {"socketpair", EPERM, EPERM,
       [](const CallArguments&) {
         std::array<int, 2> pair{};
         return Call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair.data());
       }},
      {"connect", EPERM, EPERM,
       [](const CallArguments& w) {
         const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/x"};
         return Call(SYS_connect, w.socket, &address, sizeof(address));
       }},
      {"bind", EPERM, EPERM,
       [](const CallArguments& w) {
         const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = ""};
         return Call(SYS_bind, w.socket, &address, sizeof(address.sun_family));
       }},
      {"sendto(no address)", kOk, kOk,
       [](const CallArguments& w) { return Call(SYS_sendto, w.socket, "x", 1, kSend, nullptr, 0); }},
      {"sendto(address)", EPERM, EPERM,
       [](const CallArguments& w) {
         const sockaddr_un address{.sun_family = AF_UNIX, .sun_path = "/x"};
         return Call(SYS_sendto, w.socket, "x", 1, kSend, &address, sizeof(address));
       }},
      {"sendto(MSG_OOB)", EPERM, EPERM,
       [](const CallArguments& w) {
         return Call(SYS_sendto, w.socket, "x", 1, kSend | MSG_OOB, nullptr, 0);
       }},
      {"sendto(no flags)", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_sendto, w.socket, "x", 1, 0, nullptr, 0); }},
      {"recvfrom(MSG_DONTWAIT)", EAGAIN, EAGAIN,
       [](const CallArguments& w) {
         char byte = 0;
         return Call(SYS_recvfrom, w.socket, &byte, 1, MSG_DONTWAIT, nullptr, nullptr);
       }},
      {"recvfrom(MSG_OOB)", EPERM, EPERM,
       [](const CallArguments& w) {
         char byte = 0;
         return Call(SYS_recvfrom, w.socket, &byte, 1, MSG_DONTWAIT | MSG_OOB, nullptr, nullptr);
       }},
      {"recvfrom(MSG_PEEK)", EPERM, EPERM,
       [](const CallArguments& w) {
         char byte = 0;
         return Call(SYS_recvfrom, w.socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK, nullptr, nullptr);
       }},
      {"sendmsg", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_sendmsg, w.socket, nullptr, 0); }},
      {"recvmsg", EPERM, EPERM,
       [](const CallArguments& w) { return Call(SYS_recvmsg, w.socket, nullptr, 0); }},
      {"setsockopt", EPERM, EPERM,
       [](const CallArguments& w) {
         const int on = 1;
         return Call(SYS_setsockopt, w.socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
       }},
      {"io_uring_setup", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_io_uring_setup, 1, nullptr); }},
      {"perf_event_open", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_perf_event_open, nullptr, 0, -1, -1, 0); }},
      {"bpf", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_bpf, 0, nullptr, 0); }},
      {"userfaultfd", EPERM, EPERM, [](const CallArguments&) { return Call(SYS_userfaultfd, 0); }},
      {"add_key", EPERM, EPERM,
       [](const CallArguments&) { return Call(SYS_add_key, nullptr, nullptr, nullptr, 0, 0); }},
      {"getrandom", kOk, kOk,
       [](const CallArguments&) {
         char byte = 0;
         return Call(SYS_getrandom, &byte, 1, 0);
       }},
  };
}

}  // namespace

std::vector<SandboxCall> AllSandboxCalls() {
  std::vector<SandboxCall> all;
  for (std::vector<SandboxCall> rows :
       {SignalRows(), ProcessRows(), FileRows(), MemoryRows(), NetworkAndKernelRows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace quire::runner::engine
