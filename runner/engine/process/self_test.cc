#include "runner/engine/process/self_test.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "runner/engine/process/sandbox.h"
#include "runner/kernels/self_check.h"

namespace quire::runner::engine {
namespace {

using api::ipc::SelfTestStatus;

// Through no buffer: what stdio asks about a file before it writes is denied in the sandbox.
void Print(std::string_view subject, std::string_view result, std::string_view text) {
  std::string line = fmt::format("{:<9}{:<9}{}\n", subject, result, text);
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (written <= 0) return;
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

// Closes a descriptor that should not have been given. Whether it was denied.
bool WasDenied(int fd) {
  if (fd < 0) return true;
  ::close(fd);
  return false;
}

bool ExecutableMemoryIsDenied() {
  constexpr size_t kBytes = 4096;
  void* const page = ::mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return true;
  ::munmap(page, kBytes);
  return false;
}

std::vector<std::string> AllowedCalls() {
  std::vector<std::string> allowed;
  if (!WasDenied(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)))
    allowed.emplace_back("sockets are allowed");
  if (!WasDenied(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)))
    allowed.emplace_back("opening files is allowed");
  if (::kill(::getppid(), 0) == 0) allowed.emplace_back("signals to other processes are allowed");
  if (!ExecutableMemoryIsDenied()) allowed.emplace_back("executable memory is allowed");
  return allowed;
}

bool TrySandbox(std::vector<std::string> missing) {
  for (std::string& call : AllowedCalls()) missing.push_back(std::move(call));
  std::string all;
  for (const std::string& one : missing) {
    if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
  }
  const bool complete = all.empty();
  Print("sandbox", complete ? "ok" : "reduced",
        complete ? "no sockets, files, signals to other processes or executable memory" : all);
  return complete;
}

bool CheckAllKernels() {
  bool equal = true;
  for (const kernels::KernelCheck& check : kernels::CheckKernels()) {
    const bool passed = check.failure.empty();
    Print("kernels", passed ? "ok" : "FAILED",
          passed ? check.subject : check.subject + " differ from portable code: " + check.failure);
    equal = equal && passed;
  }
  return equal;
}

}  // namespace

SelfTestStatus RunSelfTest() {
  std::vector<std::string> missing = {DropPrivileges(), RestrictFileSystem({})};
  const bool equal = CheckAllKernels();
  missing.push_back(RestrictToServing());
  const bool complete = TrySandbox(std::move(missing));
  if (!equal) return SelfTestStatus::kKernels;
  return complete ? SelfTestStatus::kPassed : SelfTestStatus::kSandbox;
}

}  // namespace quire::runner::engine
