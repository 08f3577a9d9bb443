// Exit statuses of `quired --selftest` and of the runner that it starts. Scripts rely on the numbers:
// docs/operations.md.
#pragma once

namespace quire::api::ipc {

enum class SelfTestStatus : int {
  kPassed = 0,
  kNotRun = 1,    // a part was not found or could not be started
  kKernels = 10,  // a kernel computes other bits than portable code on this CPU
  kSandbox = 11,  // the kernel does not let the runner's sandbox be complete; all else passed
  kAnswer = 12,   // the bundled model's answer is not the recorded one
};

}  // namespace quire::api::ipc
