// How a runner that a signal ends reports who sent it. The kernel does not tell the parent.
#pragma once

namespace quire::api::ipc {

// A runner exits with this plus the signal's number when another process sent a signal that otherwise reports
// a fault of the runner itself (SIGSEGV, SIGABRT, ...). A fault of its own ends it by the signal. This is a
// claim of the runner: a compromised one may make it without having received a signal.
inline constexpr int kExternalSignalExit = 128;

}  // namespace quire::api::ipc
