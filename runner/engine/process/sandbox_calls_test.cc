// System calls made from inside a confined runner, with their arguments in testing/sandbox_calls.cc.
#include "runner/engine/testing/sandbox_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runner/engine/process/sandbox.h"
#include "runner/engine/testing/skip_confinement.h"
#include "runner/kernels/numa_plan.h"

namespace quire::runner::engine {
namespace {

constexpr int kNotRun = -1;
constexpr int kDied = -2;  // the call ended the process

constexpr uid_t kNobody = 65534;

enum class Phase : uint8_t { kLoading, kWriting, kWorking };

const char* PhaseName(Phase phase) {
  if (phase == Phase::kWorking) return " at work";
  return phase == Phase::kWriting ? " while writing" : " while loading";
}

int ExpectedResult(const SandboxCall& call, Phase phase) {
  if (phase == Phase::kWorking) return call.working;
  return phase == Phase::kWriting ? call.writing.value_or(call.loading) : call.loading;
}

void Confine(Phase phase) {
  static_cast<void>(DropPrivileges());
  static_cast<void>(
      RestrictFileSystem(phase == Phase::kWriting ? FileAccess::kReadAndWrite : FileAccess::kRead));
  if (phase == Phase::kWorking) static_cast<void>(RestrictToServing());
}

class SandboxCalls : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    QUIRE_SKIP_WITH_SANITIZER();
    if (GetParam() && ::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
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
  static void RunRows(const std::vector<SandboxCall>& rows, size_t first, Phase phase, bool as_nobody,
                      pid_t victim, std::span<int> results) {
    CallArguments world;
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
    Confine(phase);
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

  static void Check(Phase phase, bool as_nobody) {
    const std::vector<SandboxCall> rows = AllSandboxCalls();
    const size_t bytes = rows.size() * sizeof(int);
    void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    const std::span<int> results(static_cast<int*>(shared), rows.size());
    std::ranges::fill(results, kNotRun);
    const pid_t victim = StartVictim(as_nobody);
    ASSERT_GT(victim, 0);
    // The rows behind one that ends its process run in another.
    for (size_t first = 0; first < rows.size();) {
      RunInChild([&] { RunRows(rows, first, phase, as_nobody, victim, results); });
      const auto not_run = std::ranges::find(results, kNotRun);
      if (not_run != results.end()) *not_run = kDied;
      first = static_cast<size_t>(not_run - results.begin()) + 1;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(results[i], ExpectedResult(rows[i], phase)) << rows[i].name << PhaseName(phase);
    }
    EXPECT_EQ(::waitpid(victim, nullptr, WNOHANG), 0) << "the other process was killed";
    ::kill(victim, SIGKILL);
    ::waitpid(victim, nullptr, 0);
    ::munmap(shared, bytes);
  }
};

TEST_P(SandboxCalls, WhileLoading) { Check(Phase::kLoading, GetParam()); }

TEST_P(SandboxCalls, WhileWriting) { Check(Phase::kWriting, GetParam()); }

TEST_P(SandboxCalls, AtWork) { Check(Phase::kWorking, GetParam()); }

// Not even where a thread may raise its priority, as one of root may.
TEST_P(SandboxCalls, NoPriorityIsAboveTheOneAtTheStart) {
  constexpr int kStart = 12;
  if (::getpriority(PRIO_PROCESS, 0) > kStart) GTEST_SKIP() << "the test has a lower priority";
  void* const shared =
      ::mmap(nullptr, 2 * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const std::span<int> results(static_cast<int*>(shared), 2);
  std::ranges::fill(results, kNotRun);
  RunInChild([&] {
    if (::setpriority(PRIO_PROCESS, 0, kStart) != 0) return;
    if (GetParam()) BecomeNobody();
    Confine(Phase::kLoading);
    results[0] = ::setpriority(PRIO_PROCESS, 0, kStart - 1) == -1 ? errno : kOk;
    results[1] = ::setpriority(PRIO_PROCESS, 0, kStart + 1) == -1 ? errno : kOk;
  });
  EXPECT_EQ(results[0], EPERM);
  EXPECT_EQ(results[1], kOk);
  ::munmap(shared, 2 * sizeof(int));
}

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
    Confine(Phase::kWorking);
    results[0] = ::syscall(SYS_sched_setaffinity, 0, sizeof(set), &set) == -1 ? errno : kOk;
    results[1] = ::syscall(SYS_sched_setaffinity, victim, sizeof(set), &set) == -1 ? errno : kOk;
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
