// The runner's part of `quired --selftest`: kernels on this CPU, and the sandbox on this kernel.
#pragma once

#include "api/ipc/self_test_status.h"

namespace quire::runner::engine {

// Enters the sandbox for good, checks from inside that it denies what it should, compares the kernels, and
// prints one line per check to standard output. The worst status: kKernels before kSandbox. Call at startup,
// before any thread.
api::ipc::SelfTestStatus RunSelfTest();

}  // namespace quire::runner::engine
