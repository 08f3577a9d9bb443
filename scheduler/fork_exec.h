// fork and exec of a runner, with nothing of the daemon left in the child but what it is given.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace quire::scheduler {

// Descriptors that the child receives. Each must be Free(), close-on-exec, and is only borrowed.
struct ChildFds {
  int program = -1;  // is executed; the child has it no longer then
  int null = -1;     // becomes 0
  int output = -1;   // becomes 1 and 2
  int ipc = -1;      // becomes RunnerProcess::kIpcFd
  int status =
      -1;  // write end of a pipe: gets errno as an int if exec fails, closes without a byte when it succeeds
  std::vector<int> files = {};  // become RunnerProcess::kFirstFileFd and the numbers that follow

  // From here on no number is one that the child uses: putting a descriptor in its place overwrites no other.
  int Free() const;
};

// Executes fds.program. `binary` is its path: argv[0], and what an interpreter opens where the program needs
// one. The child has only those variables of this process's environment that a runner reads. Returns the
// child's pid, or -1 with errno. Safe under other threads: between fork and exec the child calls only
// async-signal-safe functions, and with all signals blocked until its handlers are reset. REQUIRES: the
// calling thread outlives the child's usefulness; the child dies with it (PR_SET_PDEATHSIG).
pid_t ForkExec(const std::string& binary, const std::vector<std::string>& arguments, const ChildFds& fds);

}  // namespace quire::scheduler
