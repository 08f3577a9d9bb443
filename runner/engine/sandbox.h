// Runner sandbox, entered in three steps: a hostile model file or request can harm only its own runner.
// A sandboxed runner has no network, no other process and no file. The daemon passes the model's files as
// open descriptors. syscall_filter.h and file_rules.h have the rules.
//
// Each step only removes rights. If the kernel or the service manager does not allow a step, the runner
// continues without it and the other steps still apply. The step returns what is missing, for the log; empty =
// nothing. Sanitizer builds do nothing, because their run-time library needs the removed rights.
#pragma once

#include <filesystem>
#include <string>

namespace quire::runner::engine {

// Call at startup, before any thread: sets no_new_privs, raises the OOM score, enters a network namespace of
// its own (unless root) and, with seccomp, denies sockets, exec and access to other processes.
[[nodiscard]] std::string DropPrivileges();

// Folders in which a runner writes.
struct WritableFolders {
  bool temporary = false;        // the one for temporary files (TMPDIR, or /tmp)
  std::filesystem::path output;  // unless empty
};

// The two following calls come before a model is read. The first on every thread that was started before: from
// then on Landlock allows the calling thread, and those that it starts, only files that describe the machine,
// read-only, and the folders.
[[nodiscard]] std::string RestrictThread(const WritableFolders& folders);
// The second on the thread that reads the model: RestrictThread() for it. Seccomp then denies, in all threads,
// what is needed for setting up, and writing unless there is a folder.
[[nodiscard]] std::string RestrictFileSystem(const WritableFolders& folders);

// Call once the model is loaded: seccomp then denies opening files, in all threads.
[[nodiscard]] std::string DenyFileOpens();

}  // namespace quire::runner::engine
