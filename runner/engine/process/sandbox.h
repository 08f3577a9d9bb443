// Runner sandbox, entered in three steps: a hostile model file or request can harm only its own runner.
// A sandboxed runner has no network, no other process and no file but those that are open: the daemon passes
// the model's files as descriptors, and the runner creates what it will write before it reads the model.
// syscall_filter.h and file_rules.h have the rules.
//
// Each step only removes rights. If the kernel or the service manager does not allow a step, the other steps
// still apply. The step returns what is missing, for the log; empty = nothing. Whether a runner may go on
// then is the caller's decision: CheckSandbox(). Sanitizer builds do nothing, because their run-time library
// needs the removed rights.
#pragma once

#include <cstdint>
#include <string>

#include "api/base/error.h"

namespace quire::runner::engine {

// Call at startup, before any thread: sets no_new_privs, raises the OOM score, enters a network namespace of
// its own (unless root) and, with seccomp, denies sockets, exec and access to other processes.
[[nodiscard]] std::string DropPrivileges();

// To files that are open.
enum class FileAccess : uint8_t { kRead, kReadAndWrite };

// The two following calls come before a model is read. The first on every thread that was started before:
// from then on Landlock refuses the calling thread, and those that it starts, every file that is not open.
[[nodiscard]] std::string RestrictThread();
// The second on the thread that reads the model: RestrictThread() for it. Seccomp then denies, in all
// threads, every call with a path, what is needed for setting up, and writing unless it is asked for. What
// the kernel says of memory is read before (machine_memory.h).
[[nodiscard]] std::string RestrictFileSystem(FileAccess access);

// Call once the model is loaded: seccomp then denies what only loading needs, in all threads.
[[nodiscard]] std::string RestrictToServing();

// kUnavailable: a step so far is missing though the kernel has it, since something in front of the runner
// refuses it (a filter of the service manager or of a container): system calls are not filtered, or Landlock
// is denied. A kernel without Landlock passes: the filter of system calls denies every path too. Thread of
// the steps.
[[nodiscard]] api::Result<void> CheckSandbox();

}  // namespace quire::runner::engine
