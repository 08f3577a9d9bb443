// What a runner gives up, in three steps, so that a hostile model file or request finds nothing to use. A
// file can break only its own runner: it sees no network, no other program and no file. The model's files
// come as descriptors that the daemon opened.
//
// Each step only takes away. Where the kernel or the service manager does not allow one, the runner goes on
// without it: the others hold. Builds with a sanitizer, whose run-time library needs what is taken, do
// nothing.
#pragma once

#include <filesystem>

namespace quire::runner::engine {

// At the start, before any thread: no new privileges, the first to go when memory is short, a network
// namespace of its own (unless root), and from then on no sockets, no programs, no other processes.
void LeaveTheWorld();

// Before a model is read, by the thread that reads it and starts the others: of the file system only what
// tells of the machine, for reading. `scratch`: the folder for temporary files too. `output`: a folder to
// write to, unless empty.
void SeeOnlyMachine(bool scratch, const std::filesystem::path& output = {});

// Once loaded, for all threads: no file is opened any more.
void CloseFileSystem();

}  // namespace quire::runner::engine
