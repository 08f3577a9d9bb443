// File access of a runner's thread, restricted by Landlock.
#pragma once

#include <string>

namespace quire::runner::engine {

struct FileRestriction {
  std::string missing;   // what is not restricted, for a log; empty = nothing
  bool refused = false;  // the kernel has Landlock, and something else does not let this process use it
};

// Restricts this thread, and those that it starts, for good: it opens, makes and removes no file, uses no TCP
// port, and reaches neither processes nor abstract Unix sockets outside. Files that are open stay so. Applies
// every right that both the kernel and this code know. REQUIRES: no_new_privs.
[[nodiscard]] FileRestriction DenyThreadFiles();

}  // namespace quire::runner::engine
