// Runner sandbox, entered in three steps: a hostile model file or request can harm only its own runner.
// A sandboxed runner has no network, no other process and no file. The daemon passes the model's files as
// open descriptors.
//
// Each step only removes rights. If the kernel or the service manager does not allow a step, the runner
// continues without it and the other steps still apply. Sanitizer builds do nothing, because their run-time
// library needs the removed rights.
#pragma once

#include <filesystem>

namespace quire::runner::engine {

// Call at startup, before any thread: sets no_new_privs, raises the OOM score, enters a network namespace of
// its own (unless root) and, with seccomp, denies sockets, exec and access to other processes.
void DropPrivileges();

// Call before a model is read, on the thread that reads it and starts the others. Landlock then allows only
// files that describe the machine, read-only. `scratch`: also allow the folder for temporary files. `output`:
// also allow writing to this folder, unless empty.
void RestrictFileSystem(bool scratch, const std::filesystem::path& output = {});

// Call once the model is loaded: seccomp then denies opening files, in all threads.
void DenyFileOpens();

}  // namespace quire::runner::engine
