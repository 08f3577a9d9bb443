// quire-runner: serves one model to the daemon that started it. Not meant to be started by hand.

#include <fcntl.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <string>

#include "api/base/exceptions.h"
#include "runner/engine/process/crash_handler.h"
#include "runner/engine/process/host.h"
#include "runner/engine/process/memory_policy.h"
#include "runner/engine/process/sandbox.h"
#include "runner/engine/process/self_test.h"
#include "runner/kernels/blas.h"
#include "runner/kernels/self_check.h"
#include "runner/work/log_line.h"

using quire::runner::engine::NumaMode;

int main(int argc, char** argv) {
  quire::api::InstallTerminateHandler("quire-runner");
  CLI::App app("Serves one model to the quired process that started it", "quire-runner");
  int fd = -1;
  int snapshot_fd = -1;
  std::string name;
  bool self_test = false;
  bool require_sandbox = false;
  NumaMode numa = NumaMode::kAuto;
  app.add_option("--ipc-fd", fd, "File descriptor of the socket to the daemon");
  app.add_option("--snapshot-fd", snapshot_fd, "File descriptor of the socket to the snapshot tier");
  app.add_option("--name", name, "Model name, for process lists");
  app.add_flag("--selftest", self_test, "Check kernels and sandbox on this machine, then exit");
  app.add_flag("--require-sandbox", require_sandbox, "Load no model if the sandbox is refused");
  app.add_option("--numa", numa, "Memory on several NUMA nodes: auto, interleave, replicate or off")
      ->transform(CLI::CheckedTransformer(std::map<std::string, NumaMode>(
          quire::runner::engine::kNumaModes.begin(), quire::runner::engine::kNumaModes.end())));
  app.set_version_flag("--version", "quire-runner version " QUIRE_VERSION);
  CLI11_PARSE(app, argc, argv);
  // Where the processor has tiles, the kernel is asked for them now: filters refuse that.
  if (!quire::runner::kernels::TilesAgree()) {
    std::fputs("AMX products differ from portable ones on this CPU: AVX-512 is used\n", stderr);
  }
  // On processors without kernels of ours, a library is loaded, which filters refuse too.
  if (const std::string decided = quire::runner::kernels::ChooseBlas(); !decided.empty()) {
    std::fprintf(stderr, "%s\n", decided.c_str());
  }
  if (self_test) return static_cast<int>(quire::runner::engine::RunSelfTest());
  if (fcntl(fd, F_GETFD) < 0) {
    std::fputs("quire-runner is started by quired; --ipc-fd is not an open file descriptor\n", stderr);
    return 2;
  }
  // A terminal's Ctrl-C and systemd's SIGTERM reach the whole group: the daemon drains and then ends its
  // runners.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  quire::runner::engine::InstallCrashHandler();
  prctl(PR_SET_NAME, "quire-runner");
  const std::string refused = quire::runner::engine::SetMemoryPolicy(numa);
  if (!refused.empty()) quire::runner::engine::LogLine(refused);
  const std::string missing = quire::runner::engine::DropPrivileges();
  if (!missing.empty()) quire::runner::engine::LogLine("confined without: " + missing);
  return quire::runner::engine::RunRunner(fd, snapshot_fd, require_sandbox);
}
