// A runner process: its threads and how they hang together.
//
//   I/O thread (Link)    frames in and out
//   prompt thread        renders and tokenizes prompts, so that a long one holds up neither streams nor
//   frames engine thread        the caller of Run(): loads the model, then the step loop
//
// The process ends when the daemon closes the link or asks for it, at once and without waiting for a load:
// nothing in it outlives the daemon's interest.
#pragma once

namespace quire::runner::engine {

// Serves the daemon over `fd` until the link ends. The value is the exit code.
int RunRunner(int fd);

}  // namespace quire::runner::engine
