#include "runner/engine/process/crash_handler.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>  // sigabbrev_np
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <latch>
#include <string>
#include <thread>

#include "api/ipc/exit_status.h"
#include "runner/engine/process/sandbox.h"
#include "runner/engine/testing/skip_confinement.h"

namespace quire::runner::engine {
namespace {

struct Death {
  int status = 0;  // as waitpid has it
  std::string output;
};

// `work` runs in a confined process with the handler, on a thread that was started before; `signal` is sent
// to the process once it is up, unless 0.
Death RunConfined(int signal, const std::function<void()>& work) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[1]);
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    InstallCrashHandler();
    static_cast<void>(DropPrivileges());
    static_cast<void>(RestrictFileSystem({}));
    std::latch confined(1);
    std::thread worker([&] {
      confined.wait();
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, "up\n", 3);
      work();
    });
    static_cast<void>(RestrictToServing());
    confined.count_down();
    worker.join();
    ::_exit(0);
  }
  ::close(pipe[1]);
  Death death;
  char byte = 0;
  while (::read(pipe[0], &byte, 1) == 1) {
    death.output += byte;
    if (signal != 0 && death.output == "up\n") ::kill(pid, signal);
  }
  ::close(pipe[0]);
  EXPECT_EQ(::waitpid(pid, &death.status, 0), pid);
  return death;
}

// pause() is not among the calls of a confined process.
void WaitForever() {
  while (true) ::sleep(60);
}

TEST(CrashHandler, ASignalFromAnotherProcessIsAnExitStatus) {
  QUIRE_SKIP_WITH_SANITIZER();
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    const Death death = RunConfined(signal, WaitForever);
    ASSERT_TRUE(WIFEXITED(death.status)) << signal;
    EXPECT_EQ(WEXITSTATUS(death.status), api::ipc::kExternalSignalExit + signal);
    EXPECT_EQ(death.output, "up\nquire-runner: SIG" + std::string(::sigabbrev_np(signal)) +
                                " sent by process " + std::to_string(::getpid()) + " of user " +
                                std::to_string(::getuid()) + "\n");
  }
}

TEST(CrashHandler, AFaultEndsByItsSignal) {
  QUIRE_SKIP_WITH_SANITIZER();
  void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const Death fault = RunConfined(0, [page] { *static_cast<volatile char*>(page) = 1; });
  ASSERT_TRUE(WIFSIGNALED(fault.status));
  EXPECT_EQ(WTERMSIG(fault.status), SIGSEGV);
  EXPECT_EQ(fault.output, "up\nquire-runner: fatal SIGSEGV\n");
  ::munmap(page, 4096);
  const Death abort = RunConfined(0, [] { std::abort(); });
  ASSERT_TRUE(WIFSIGNALED(abort.status));
  EXPECT_EQ(WTERMSIG(abort.status), SIGABRT);
  EXPECT_EQ(abort.output, "up\nquire-runner: fatal SIGABRT\n");
}

// As the daemon makes the pipe: a full one stops no writer, but the last line waits for room.
TEST(CrashHandler, TheLastLineWaitsForRoomInAFullPipe) {
  QUIRE_SKIP_WITH_SANITIZER();
  std::array<int, 2> log{};
  std::array<int, 2> filled{};
  ASSERT_EQ(::pipe2(log.data(), O_NONBLOCK), 0);
  ASSERT_EQ(::pipe(filled.data()), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(log[1], STDERR_FILENO);
    InstallCrashHandler();
    std::array<char, 4096> text{};
    while (::write(STDERR_FILENO, text.data(), text.size()) > 0) continue;
    if (::write(filled[1], "x", 1) == 1) std::abort();
    ::_exit(0);
  }
  ::close(log[1]);
  char byte = 0;
  ASSERT_EQ(::read(filled[0], &byte, 1), 1);
  ::usleep(50'000);  // the handler most likely finds no room first
  ASSERT_EQ(::fcntl(log[0], F_SETFL, 0), 0);
  std::string output;
  while (::read(log[0], &byte, 1) == 1) output += byte;
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(output.ends_with("quire-runner: fatal SIGABRT\n"));
  for (const int fd : {log[0], filled[0], filled[1]}) ::close(fd);
}

TEST(CrashHandler, SignalsThatReportNoFaultKeepTheirAction) {
  QUIRE_SKIP_WITH_SANITIZER();
  const Death death = RunConfined(SIGUSR1, [] { WaitForever(); });
  ASSERT_TRUE(WIFSIGNALED(death.status));
  EXPECT_EQ(WTERMSIG(death.status), SIGUSR1);
}

}  // namespace
}  // namespace quire::runner::engine
