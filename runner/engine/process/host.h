// A runner process and its threads.
//
//   I/O thread (Link)    sends and receives frames
//   prompt threads       render and tokenize prompts and compile formats (preparation.h), so that a long
//                        one delays neither streams nor frames nor a short one
//   engine thread        the caller of RunRunner(): loads the model, then runs the step loop
//
// The process ends when the daemon closes the link or sends Shutdown, at once and without waiting for a load;
// with a snapshot tier a loaded model first stores the prefixes that are not stored yet, for at most
// kFlushTime.
#pragma once

namespace quire::runner::engine {

// Serves the daemon over `fd` until the link ends. The value is the exit code. `snapshot_fd`: socket to the
// daemon's snapshot tier, its memory file being the next number; -1 = none. `require_sandbox`: no model is
// read where a step of the sandbox is refused.
int RunRunner(int fd, int snapshot_fd, bool require_sandbox);

}  // namespace quire::runner::engine
