#include "scheduler/runner_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/base/file_descriptor.h"
#include "scheduler/testing/io_loop.h"

namespace quire::scheduler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Socket = boost::asio::local::stream_protocol::socket;

boost::asio::awaitable<size_t> ReadSome(Socket& socket) {
  std::array<char, 64> buffer{};
  const auto [error, bytes] = co_await socket.async_read_some(
      boost::asio::buffer(buffer), boost::asio::as_tuple(boost::asio::use_awaitable));
  co_return bytes;
}

class RunnerProcessTest : public testing::Test {
 protected:
  // Started, and past its Hello.
  std::unique_ptr<RunnerProcess> Start(std::vector<api::FileDescriptor> files = {}) {
    auto started =
        loop_.Run(RunnerProcess::Start(loop_.executor(), QUIRE_FAKE_RUNNER, "a name", std::move(files)));
    if (!started) throw std::runtime_error(started.error().message);
    socket_.emplace((*started)->TakeSocket());
    EXPECT_GT(loop_.Run(ReadSome(*socket_)), 0U);
    return *std::move(started);
  }
  ExitStatus Wait(RunnerProcess& process) { return loop_.Run(process.Wait()).value(); }
  void CloseSocket() { socket_.reset(); }
  IoLoop& loop() { return loop_; }

  static std::string Status(pid_t pid, const std::string& field) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(field + ":\t")) return line.substr(field.size() + 2);
    }
    return "";
  }

 private:
  IoLoop loop_;
  std::optional<Socket> socket_;
};

TEST_F(RunnerProcessTest, SaysHowItEnded) {
  auto exited = Start();
  CloseSocket();
  EXPECT_EQ(Wait(*exited).ToString(), "exited with status 0");
  auto killed = Start();
  killed->Send(SIGTERM);
  EXPECT_EQ(Wait(*killed).ToString(), "killed by signal 15 (SIGTERM)");
  EXPECT_EQ(::kill(killed->pid(), 0), -1) << "a zombie is left";
  killed->Send(SIGTERM);  // harmless once it is reaped
}

TEST_F(RunnerProcessTest, KnowsASignalFromOutside) {
  for (const int signal : {SIGSEGV, SIGKILL, SIGUSR1}) {
    auto process = Start();
    process->Send(signal);
    const ExitStatus status = Wait(*process);
    EXPECT_TRUE(status.by_signal);
    EXPECT_EQ(status.value, signal);
    EXPECT_TRUE(status.external) << status.ToString();
    EXPECT_EQ(status.ToString().ends_with(" from another process"), signal == SIGSEGV) << status.ToString();
  }
}

TEST_F(RunnerProcessTest, ReportsWhyItCannotStart) {
  const auto missing = loop().Run(RunnerProcess::Start(loop().executor(), "/nonexistent/runner", "x"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, api::ErrorCode::kUnavailable);
  EXPECT_EQ(missing.error().message,
            "cannot start the model runner /nonexistent/runner: exec: No such file or directory");
  const auto folder = loop().Run(RunnerProcess::Start(loop().executor(), "/tmp", "x"));
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr("Permission denied"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

// As a package that is upgraded replaces it.
TEST_F(RunnerProcessTest, StartsTheFileThatWasOpened) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "quire-replaced-runner";
  std::filesystem::create_directories(folder);
  const std::filesystem::path path = folder / "runner", other = folder / "other";
  std::filesystem::copy_file(QUIRE_FAKE_RUNNER, path, std::filesystem::copy_options::overwrite_existing);
  const auto size = std::filesystem::file_size(path);
  const RunnerProgram program(path);
  std::ofstream(other) << "#!/bin/sh\nexit 7\n";
  std::filesystem::permissions(other, std::filesystem::perms::owner_all);
  std::filesystem::rename(other, path);
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  std::vector<std::ptrdiff_t> open_files;  // the loop opens its own with the first
  for (int i = 0; i < 3; ++i) {
    const auto started = loop().Run(RunnerProcess::Start(loop().executor(), program, "x"));
    ASSERT_TRUE(started);
    Socket socket = (*started)->TakeSocket();
    EXPECT_GT(loop().Run(ReadSome(socket)), 0U);
    const std::string own = "/proc/" + std::to_string((*started)->pid());
    EXPECT_EQ(std::filesystem::read_symlink(own + "/exe"), path.string() + " (deleted)");
    std::ifstream arguments(own + "/cmdline");
    std::string first;
    std::getline(arguments, first, '\0');
    EXPECT_EQ(first, path);
    open_files.push_back(count());
  }
  EXPECT_EQ(open_files[2], open_files[1]);
  EXPECT_EQ(std::filesystem::file_size(program.open_path()), size) << "another file would be hashed";
  std::filesystem::remove_all(folder);
}

TEST_F(RunnerProcessTest, AScriptIsStartedByItsPath) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "quire-runner-script";
  std::ofstream(path) << "#!/bin/sh\nexit 7\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const auto started = loop().Run(RunnerProcess::Start(loop().executor(), path, "x"));
  ASSERT_TRUE(started);
  EXPECT_EQ(Wait(**started).ToString(), "exited with status 7");
  std::filesystem::remove(path);
}

TEST_F(RunnerProcessTest, TheChildHasItsOwnDescriptorsOnly) {
  const int leak = ::open("/dev/null", O_RDONLY);  // not close-on-exec
  ASSERT_GE(leak, 0);
  const auto process = Start();
  std::set<int> fds;
  const std::string folder = "/proc/" + std::to_string(process->pid()) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    fds.insert(std::stoi(entry.path().filename()));
  }
  EXPECT_THAT(fds, ElementsAre(0, 1, 2, RunnerProcess::kIpcFd));
  EXPECT_EQ(std::filesystem::read_symlink(folder + "/0"), "/dev/null");
  ::close(leak);
}

TEST_F(RunnerProcessTest, TheChildHasOnlyTheVariablesThatARunnerReads) {
  const std::vector<std::string> secrets = {
      "QUIRE_SNAPSHOT_REDIS", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "GITHUB_TOKEN", "TZ_TOKEN", "HOME"};
  const std::vector<std::string> passed = {"TZ", "TMPDIR", "QUIRE_DRAFT_TOKENS", "MALLOC_ARENA_MAX",
                                           "QUIRE_CHECK_INVARIANTS"};
  const auto value_of = [](const std::string& name) {
    const char* now = std::getenv(name.c_str());
    return now ? std::optional<std::string>(now) : std::nullopt;
  };
  std::map<std::string, std::optional<std::string>> before;
  for (const std::string& name : secrets) before[name] = value_of(name);
  for (const std::string& name : passed) before[name] = value_of(name);
  for (const std::string& name : secrets) ::setenv(name.c_str(), "secret", 1);
  for (const std::string& name : passed) ::setenv(name.c_str(), before[name].value_or("1").c_str(), 1);

  const auto process = Start();
  std::ifstream file("/proc/" + std::to_string(process->pid()) + "/environ");
  std::set<std::string> names;
  for (std::string variable; std::getline(file, variable, '\0');) {
    EXPECT_THAT(variable, testing::Not(HasSubstr("secret")));
    names.insert(variable.substr(0, variable.find('=')));
  }
  for (const std::string& name : passed) EXPECT_TRUE(names.contains(name)) << name;
  for (const auto& [name, value] : before) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
}

// Whatever numbers they have here, which overlap those that the child uses.
TEST_F(RunnerProcessTest, TheChildHasTheFilesItIsGivenInTheirOrder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "quire-given-files";
  std::filesystem::create_directories(folder);
  constexpr int kFiles = 300;
  std::vector<std::string> names;
  std::vector<api::FileDescriptor> files;
  for (int i = 0; i < kFiles; ++i) {
    names.push_back(folder / std::to_string(i));
    std::ofstream(names.back()).flush();
    files.emplace_back(::open(names.back().c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(files.back().valid());
  }
  std::ranges::reverse(names);
  std::ranges::reverse(files);
  const auto count = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                   std::filesystem::directory_iterator());
  const auto process = Start(std::move(files));
  const std::string held = "/proc/" + std::to_string(process->pid()) + "/fd/";
  for (int i = 0; i < kFiles; ++i) {
    const std::string number = std::to_string(RunnerProcess::kFirstFileFd + i);
    EXPECT_EQ(std::filesystem::read_symlink(held + number), names[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(held), std::filesystem::directory_iterator()),
            4 + kFiles);
  EXPECT_LT(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                          std::filesystem::directory_iterator()),
            count)
      << "they are still open here";
  std::filesystem::remove_all(folder);
}

// The child's own numbers have to be left free, and beyond them there are fewer than it takes.
TEST_F(RunnerProcessTest, SaysWhenNoDescriptorIsLeft) {
  std::vector<api::FileDescriptor> files;
  for (int i = 0; i < 25; ++i) files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 45;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto refused =
      loop().Run(RunnerProcess::Start(loop().executor(), QUIRE_FAKE_RUNNER, "x", std::move(files)));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("Too many open files"));
}

TEST_F(RunnerProcessTest, OursAreAllClosedWithIt) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  Start()->Send(SIGKILL);  // the loop has what it needs from now on
  CloseSocket();
  const auto before = count();
  for (int i = 0; i < 5; ++i) {
    auto process = Start();
    process->Send(SIGKILL);
    Wait(*process);
    CloseSocket();
    (void)loop().Run(RunnerProcess::Start(loop().executor(), "/nonexistent/runner", "x"));
  }
  EXPECT_EQ(count(), before);
}

TEST_F(RunnerProcessTest, TheChildsSignalsAreAtTheirDefaults) {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::sigaddset(&blocked, SIGTERM);
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const auto pipe_before = ::signal(SIGPIPE, SIG_IGN);
  const auto process = Start();
  EXPECT_EQ(Status(process->pid(), "SigBlk"), "0000000000000000");
  EXPECT_EQ(Status(process->pid(), "SigIgn"), "0000000000000000");
  EXPECT_EQ(::getpgid(process->pid()), process->pid()) << "Ctrl-C must not reach it";
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(::sigismember(&now, SIGUSR1), 1) << "ours are as before";
  EXPECT_EQ(::sigismember(&now, SIGUSR2), 0);
  ::signal(SIGPIPE, pipe_before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(RunnerProcessTest, DestructionKillsAndReaps) {
  const pid_t pid = Start()->pid();
  EXPECT_EQ(::kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(RunnerProcessTest, WaitingMayBeCancelled) {
  const auto process = Start();
  const auto waiting = loop().Spawn(process->Wait());
  loop().Poll();
  waiting->Cancel();
  EXPECT_FALSE(loop().Wait(waiting));
  process->Send(SIGKILL);
  EXPECT_EQ(Wait(*process).ToString(), "killed by signal 9 (SIGKILL)");
}

TEST_F(RunnerProcessTest, StartsUnderBusyThreads) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      while (!stop) {
        const std::string memory(static_cast<size_t>(::getpid() % 7 + 1) * 1000, 'x');
        ::close(::dup(STDERR_FILENO));
        EXPECT_EQ(memory.back(), 'x');
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    const auto process = Start();
    process->Send(SIGKILL);
    EXPECT_EQ(Wait(*process).ToString(), "killed by signal 9 (SIGKILL)");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// In a separate process: starts a runner, reports its pid and waits to be killed.
[[noreturn]] void StartAndReportPid(int pipe) {
  IoLoop loop;
  auto started = loop.Run(RunnerProcess::Start(loop.executor(), QUIRE_FAKE_RUNNER, "orphan"));
  const pid_t pid = started ? (*started)->pid() : -1;
  if (::write(pipe, &pid, sizeof(pid)) != sizeof(pid)) ::_exit(1);
  while (true) ::pause();
}

TEST(RunnerProcessDeathTest, ARunnerDiesWithItsDaemon) {
  // The orphan comes to us, so that its end can be waited for.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t daemon = ::fork();
  if (daemon == 0) StartAndReportPid(pipe[1]);
  ASSERT_GT(daemon, 0);
  pid_t runner = -1;
  ASSERT_EQ(::read(pipe[0], &runner, sizeof(runner)), static_cast<ssize_t>(sizeof(runner)));
  ASSERT_GT(runner, 0);
  ASSERT_EQ(::kill(runner, 0), 0);

  ASSERT_EQ(::kill(daemon, SIGKILL), 0);
  ASSERT_EQ(::waitpid(daemon, nullptr, 0), daemon);
  int status = 0;
  ASSERT_EQ(::waitpid(runner, &status, 0), runner);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  ::close(pipe[0]);
  ::close(pipe[1]);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace quire::scheduler
