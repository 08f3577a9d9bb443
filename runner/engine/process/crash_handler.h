// The last message of a runner that a signal ends, and the difference between a fault and a signal from
// outside.
#pragma once

namespace quire::runner::engine {

// Handles the signals that report a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS), in all
// threads. Each gives one line on standard error. A fault, or a signal of this process itself, then ends the
// process by that signal. One that another process sent ends it with the status api::ipc::kExternalSignalExit
// + signal, so that no request is blamed for it. Signals that are handled already (by a sanitizer) stay so. A
// thread without stack left ends by the signal without a line. Call at startup.
void InstallCrashHandler();

}  // namespace quire::runner::engine
