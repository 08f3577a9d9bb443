// The filter for arm64, whose kernel has fewer system calls: run by an interpreter of its program, so on any
// machine.
#include "runner/engine/process/syscall_filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "api/base/file_descriptor.h"
#include "runner/engine/testing/skip_confinement.h"

namespace quire::runner::engine {
namespace {

std::vector<sock_filter> ProgramFor(FilterPhase phase, uint32_t architecture) {
  const api::FileDescriptor file(::memfd_create("filter", MFD_CLOEXEC));
  EXPECT_EQ(0, ExportSyscallFilter(phase, architecture, file.get()));
  std::vector<sock_filter> program(static_cast<size_t>(::lseek(file.get(), 0, SEEK_END)) /
                                   sizeof(sock_filter));
  const size_t bytes = program.size() * sizeof(sock_filter);
  EXPECT_EQ(static_cast<ssize_t>(bytes), ::pread(file.get(), program.data(), bytes, 0));
  return program;
}

// The part of the kernel's machine that libseccomp's programs use.
class Interpreter {
 public:
  Interpreter(const std::vector<sock_filter>& program, const seccomp_data& data)
      : program_(program), data_(data) {}

  // SECCOMP_RET_...
  uint32_t Run() {
    for (size_t at = 0; at < program_.size(); ++at) {
      const sock_filter& op = program_[at];
      switch (BPF_CLASS(op.code)) {
        case BPF_RET:
          return op.k;
        case BPF_LD:
          if (BPF_MODE(op.code) != BPF_ABS || op.k + sizeof(sum_) > sizeof(data_)) return Unknown(op);
          std::memcpy(&sum_, reinterpret_cast<const char*>(&data_) + op.k, sizeof(sum_));
          break;
        case BPF_ALU:
          if (BPF_OP(op.code) != BPF_AND || BPF_SRC(op.code) != BPF_K) return Unknown(op);
          sum_ &= op.k;
          break;
        case BPF_JMP:
          if (BPF_OP(op.code) == BPF_JA) {
            at += op.k;
          } else {
            at += Holds(op) ? op.jt : op.jf;
          }
          break;
        default:
          return Unknown(op);
      }
    }
    ADD_FAILURE() << "the program has no end";
    return 0;
  }

 private:
  static uint32_t Unknown(const sock_filter& op) {
    ADD_FAILURE() << "unknown instruction " << op.code;
    return 0;
  }
  bool Holds(const sock_filter& op) const {
    switch (BPF_OP(op.code)) {
      case BPF_JEQ:
        return sum_ == op.k;
      case BPF_JGT:
        return sum_ > op.k;
      case BPF_JGE:
        return sum_ >= op.k;
      default:
        return (sum_ & op.k) != 0;
    }
  }

  const std::vector<sock_filter>& program_;
  const seccomp_data& data_;
  uint32_t sum_ = 0;
};

constexpr uint32_t kAllowed = SECCOMP_RET_ALLOW;
constexpr uint32_t kDenied = SECCOMP_RET_ERRNO | EPERM;

class Arm64Filter : public testing::Test {
 protected:
  void SetUp() override { QUIRE_SKIP_WITHOUT_SECCOMP(); }

  uint32_t Result(FilterPhase phase, const char* name, std::array<uint64_t, 6> arguments = {}) {
    const int number = ::seccomp_syscall_resolve_name_arch(SCMP_ARCH_AARCH64, name);
    EXPECT_GE(number, 0) << name << " is no system call of arm64";
    return ResultOf(phase, SCMP_ARCH_AARCH64, number, arguments);
  }
  uint32_t ResultOf(FilterPhase phase, uint32_t architecture, int number,
                    std::array<uint64_t, 6> arguments = {}) {
    std::vector<sock_filter>& program = programs_.at(static_cast<size_t>(phase));
    if (program.empty()) program = ProgramFor(phase, SCMP_ARCH_AARCH64);
    seccomp_data data{};
    data.arch = architecture;
    data.nr = number;
    std::copy(arguments.begin(), arguments.end(), data.args);
    return Interpreter(program, data).Run();
  }

 private:
  std::array<std::vector<sock_filter>, 4> programs_;
};

TEST_F(Arm64Filter, AllowsWhatTheCLibraryCallsThere) {
  for (const char* name : {"brk", "munmap", "futex", "rt_sigreturn", "exit_group", "clock_gettime",
                           "getrandom", "read", "write", "close", "fstat", "ppoll", "sched_yield"}) {
    EXPECT_EQ(kAllowed, Result(FilterPhase::kWorking, name)) << name;
  }
  EXPECT_EQ(kAllowed, Result(FilterPhase::kWorking, "mmap", {0, 4096, PROT_READ | PROT_WRITE}));
  EXPECT_EQ(kAllowed, Result(FilterPhase::kWorking, "madvise", {0, 4096, MADV_DONTNEED}));
  const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                          CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
  EXPECT_EQ(kAllowed, Result(FilterPhase::kLoading, "clone", {thread}));
  EXPECT_EQ(kDenied, Result(FilterPhase::kWorking, "clone", {thread}));
  EXPECT_EQ(SECCOMP_RET_ERRNO | ENOSYS, Result(FilterPhase::kWorking, "clone3"));
  EXPECT_EQ(kAllowed, Result(FilterPhase::kLoading, "setpriority", {PRIO_PROCESS, 0, 19}));
  EXPECT_EQ(kAllowed, Result(FilterPhase::kWriting, "pwrite64"));
  EXPECT_EQ(kAllowed, Result(FilterPhase::kSetUp, "openat", {0, 0, O_RDONLY | O_CLOEXEC}));
  EXPECT_EQ(kAllowed, Result(FilterPhase::kSetUp, "unlinkat"));
  EXPECT_EQ(kAllowed, Result(FilterPhase::kSetUp, "eventfd2"));
}

TEST_F(Arm64Filter, RefusesTheRest) {
  for (const char* name :
       {"execve", "socket", "connect", "openat", "openat2", "newfstatat", "statx", "ptrace", "kill", "tkill",
        "unshare", "setns", "memfd_create", "process_vm_readv", "io_uring_setup", "dup3"}) {
    EXPECT_EQ(kDenied, Result(FilterPhase::kWorking, name)) << name;
  }
  EXPECT_EQ(kDenied, Result(FilterPhase::kWorking, "mmap", {0, 4096, PROT_READ | PROT_EXEC}));
  EXPECT_EQ(kDenied, Result(FilterPhase::kWorking, "clone", {SIGCHLD}));
  for (const FilterPhase phase : {FilterPhase::kWriting, FilterPhase::kLoading}) {
    EXPECT_EQ(kDenied, Result(phase, "openat", {0, 0, O_RDONLY | O_CLOEXEC}));
    EXPECT_EQ(kDenied, Result(phase, "openat", {0, 0, O_PATH}));
    EXPECT_EQ(kDenied, Result(phase, "unlinkat"));
    EXPECT_EQ(kDenied, Result(phase, "setpriority", {PRIO_PROCESS, 0, 0}));
    EXPECT_EQ(kDenied, Result(phase, "setpriority", {PRIO_PROCESS, 0, static_cast<uint32_t>(-20)}));
    EXPECT_EQ(kDenied, Result(phase, "setpriority", {PRIO_PROCESS, 1, 19}));
  }
}

// A process may ask for system calls of another architecture by their numbers.
TEST_F(Arm64Filter, RefusesCallsOfOtherArchitectures) {
  for (const uint32_t other : {uint32_t{SCMP_ARCH_X86_64}, uint32_t{SCMP_ARCH_ARM}}) {
    EXPECT_NE(kAllowed, ResultOf(FilterPhase::kWorking, other, 0)) << other;
  }
}

}  // namespace
}  // namespace quire::runner::engine
