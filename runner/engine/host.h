// A runner process and its threads.
//
//   I/O thread (Link)    sends and receives frames
//   prompt threads       render and tokenize prompts and compile formats (preparation.h), so that a long one delays
//                        neither streams nor frames nor a short one
//   engine thread        the caller of RunRunner(): loads the model, then runs the step loop
//
// The process ends when the daemon closes the link or sends Shutdown, at once and without waiting for a load.
#pragma once

namespace quire::runner::engine {

// Serves the daemon over `fd` until the link ends. The value is the exit code.
int RunRunner(int fd);

}  // namespace quire::runner::engine
