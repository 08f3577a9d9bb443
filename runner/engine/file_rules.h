// File access of a runner's thread, restricted by Landlock.
#pragma once

#include <string>

namespace quire::runner::engine {

// Restricts this thread, and those that it starts, for good: it opens, makes and removes no file, uses no TCP
// port, and reaches neither processes nor abstract Unix sockets outside. Files that are open stay so. Applies
// every right that both the kernel and this code know. Returns what the kernel cannot restrict, for a log;
// empty = nothing. REQUIRES: no_new_privs.
[[nodiscard]] std::string DenyThreadFiles();

}  // namespace quire::runner::engine
