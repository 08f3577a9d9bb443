// `quired --selftest`: whether this installation works on this machine. Kernels and sandbox are checked by
// the runner (runner/engine/process/self_test.h); then the bundled model answers a question, through the
// scheduler and a runner as in service.
#pragma once

#include "api/ipc/self_test_status.h"
#include "server/options.h"

namespace quire::server {

// Prints one line per check to standard output. Needs no port, no store and no network. The status is the
// first of kNotRun, kKernels, kAnswer, kSandbox that applies. Call before any thread is started.
api::ipc::SelfTestStatus RunSelfTest(const OptionTable& table);

}  // namespace quire::server
