// Each case runs in a child: what is given up does not come back.
#include "runner/engine/process/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/base/memory_limit.h"
#include "runner/engine/process/machine_memory.h"
#include "runner/engine/testing/skip_confinement.h"
#include "runner/weights/gguf_writer.h"
#include "runner/weights/model_files.h"
#include "runner/weights/output_file.h"
#include "runner/weights/scratch_file.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

class Sandbox : public ::testing::Test {
 protected:
  Sandbox() {
    std::string name = fs::temp_directory_path() / "quire-sandbox-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    Write("model.gguf");
    fs::create_directory(folder_ / "out");
  }
  ~Sandbox() override { fs::remove_all(folder_); }

  void Write(const char* name) const { std::ofstream(folder_ / name) << "bytes"; }

  // True when every one of the child's claims held.
  static bool InChild(const std::function<std::vector<bool>()>& claims) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      int number = 0;
      for (const bool holds : claims()) {
        ++number;
        if (!holds) ::_exit(number);
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << "number of the claim that does not hold";
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  static bool Reads(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char byte = 0;
    const bool read = ::read(fd, &byte, 1) >= 0;
    ::close(fd);
    return read;
  }
  static bool Writes(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
  }
  static bool Runs() {
    bool ran = false;
    std::thread([&ran] { ran = true; }).join();
    return ran;
  }

  fs::path folder_;
};

bool Refused(int result) { return result == -1 && errno == EPERM; }

TEST_F(Sandbox, AtTheStartThereIsNoNetworkAndNoOtherProgram) {
  QUIRE_SKIP_WITH_SANITIZER();
  EXPECT_TRUE(InChild([&]() -> std::vector<bool> {
    static_cast<void>(DropPrivileges());
    char* arguments[] = {const_cast<char*>("/bin/true"), nullptr};
    pid_t spawned = 0;
    return {Refused(::socket(AF_INET, SOCK_STREAM, 0)),
            Refused(::socket(AF_UNIX, SOCK_STREAM, 0)),
            Refused(::execve("/bin/true", arguments, nullptr)),
            Refused(::fork()),
            ::posix_spawn(&spawned, "/bin/true", nullptr, nullptr, arguments, nullptr) != 0,
            Refused(::kill(::getppid(), 0)),
            Runs(),
            Reads(folder_ / "model.gguf")};
  }));
}

// The model's files come open, and open once more they do not, be it by way of their descriptors. What the
// kernel says of memory was read before, and how much the process has is read again.
TEST_F(Sandbox, AReaderHasItsModelAndSeesNoFile) {
  QUIRE_SKIP_WITH_SANITIZER();
  QUIRE_SKIP_WITHOUT_SECCOMP();
  const fs::path model = fs::absolute("tests/data/gguf/lfm2.f16.gguf");
  EXPECT_TRUE(InChild([&]() -> std::vector<bool> {
    const int inherited = ::open(model.c_str(), O_RDONLY | O_CLOEXEC);
    const auto before = weights::Open(model);
    const int64_t limit = api::FindMemoryLimit().bytes;
    static_cast<void>(DropPrivileges());
    static_cast<void>(RestrictFileSystem({}));
    const bool seen = Reads(model) || Reads("/proc/self/fd/" + std::to_string(inherited)) ||
                      Reads(folder_ / "model.gguf") || Reads("/etc/passwd");
    const auto files = weights::Open(weights::ModelSource(model, {{"", inherited}}));
    return {!seen,
            before && files,
            before && files && std::ranges::equal((*files)->tensors()[0].data, (*before)->tensors()[0].data),
            ::fcntl(inherited, F_GETFD) < 0 && errno == EBADF,
            !Reads("/proc/meminfo"),
            !Reads("/proc/self/statm"),
            MemoryLimitBytes() == limit,
            AvailableMemoryBytes() > 0,
            ResidentBytes() > 0,
            !Writes(folder_ / "model.gguf"),
            !Writes(folder_ / "new"),
            !Writes("/tmp/quire-no-file"),
            Runs()};
  }));
}

// Landlock by itself, which also restricts the thread that was started first: it knows no other process.
TEST_F(Sandbox, AThreadIsRestrictedWithoutAFilterOfSystemCalls) {
  QUIRE_SKIP_WITH_SANITIZER();
  constexpr int kVersionThatRestrictsSignals = 6;
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) GTEST_SKIP() << "the kernel has no Landlock";
  EXPECT_TRUE(InChild([&]() -> std::vector<bool> {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const bool whole = RestrictThread().empty();
    const bool signals_denied = ::kill(::getppid(), 0) == -1 && errno == EPERM;
    return {whole == (version >= kVersionThatRestrictsSignals),
            signals_denied == whole,
            !Reads(folder_ / "model.gguf"),
            !Writes(folder_ / "new"),
            !Reads("/proc/self/statm"),
            !Reads("/sys/devices/system/cpu/online"),
            !Reads("/proc/self/environ")};
  }));
}

TEST_F(Sandbox, AWriterWritesTheFilesThatItCreatedBefore) {
  QUIRE_SKIP_WITH_SANITIZER();
  QUIRE_SKIP_WITHOUT_SECCOMP();
  EXPECT_TRUE(InChild([&]() -> std::vector<bool> {
    static_cast<void>(DropPrivileges());
    weights::OutputFile output(folder_ / "out/new");
    weights::CreateScratchFiles(2);
    static_cast<void>(RestrictFileSystem(FileAccess::kReadAndWrite));
    constexpr size_t kBytes = size_t{1} << 20;
    auto scratch = weights::ScratchFile::Make(kBytes), second = weights::ScratchFile::Make(kBytes);
    if (!scratch || !second) return {false};
    std::ranges::fill(scratch->data(), std::byte{1});
    std::ranges::fill(second->data(), std::byte{2});
    return {scratch->data()[kBytes - 1] == std::byte{1},
            !weights::ScratchFile::Make(kBytes),
            weights::GgufWriter().Write(std::move(output), {}).has_value(),
            !Writes(folder_ / "out/more"),
            !Writes(weights::TemporaryFolder() / "quire-no-file"),
            Refused(::unlink((folder_ / "out/new").c_str())),
            !Reads(folder_ / "model.gguf"),
            !Reads("/etc/passwd")};
  }));
  EXPECT_EQ(fs::file_size(folder_ / "out/new"), 32U);  // a GGUF file of nothing
}

// What is not finished stays for the daemon, which removes the folder: the runner may not.
TEST_F(Sandbox, AWriterLeavesWhatItDoesNotFinish) {
  QUIRE_SKIP_WITH_SANITIZER();
  QUIRE_SKIP_WITHOUT_SECCOMP();
  EXPECT_TRUE(InChild([&]() -> std::vector<bool> {
    static_cast<void>(DropPrivileges());
    {
      weights::OutputFile output(folder_ / "out/half");
      static_cast<void>(RestrictFileSystem(FileAccess::kReadAndWrite));
      output.Write("half");
    }
    return {Refused(::access((folder_ / "out/half").c_str(), F_OK))};
  }));
  EXPECT_TRUE(fs::exists(folder_ / "out/half"));
}

TEST_F(Sandbox, AnEngineAtWorkOpensNothing) {
  QUIRE_SKIP_WITH_SANITIZER();
  QUIRE_SKIP_WITHOUT_SECCOMP();
  EXPECT_TRUE(InChild([&]() -> std::vector<bool> {
    std::time_t now = 1'700'000'000;
    std::tm before{};
    ::localtime_r(&now, &before);
    // A thread that existed before is restricted too.
    bool held = false;
    int pipe_ends[2] = {-1, -1};
    if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return {false};
    static_cast<void>(DropPrivileges());
    std::thread earlier([&] {
      char byte = 0;
      held =
          ::read(pipe_ends[0], &byte, 1) == 1 && Refused(::open((folder_ / "model.gguf").c_str(), O_RDONLY));
    });
    static_cast<void>(RestrictFileSystem({}));
    static_cast<void>(RestrictToServing());
    const bool written = ::write(pipe_ends[1], "x", 1) == 1;
    earlier.join();
    std::tm after{};
    ::localtime_r(&now, &after);
    const std::vector<char> memory(size_t{64} << 20, 'x');
    return {written,
            held,
            Refused(::open((folder_ / "model.gguf").c_str(), O_RDONLY)),
            Refused(::open("/proc/self/maps", O_RDONLY)),
            Refused(::unlink((folder_ / "model.gguf").c_str())),
            Refused(::access((folder_ / "model.gguf").c_str(), R_OK)),
            Refused(::socket(AF_UNIX, SOCK_STREAM, 0)),
            Refused(::fork()),
            after.tm_hour == before.tm_hour && after.tm_gmtoff == before.tm_gmtoff,
            memory.back() == 'x'};
  }));
}

}  // namespace
}  // namespace quire::runner::engine
