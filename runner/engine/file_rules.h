// File access of a runner's thread, restricted by Landlock.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace quire::runner::engine {

struct FileRules {
  std::vector<std::filesystem::path> readable;  // files, and folders with all that is in them
  std::vector<std::filesystem::path> writable;  // folders in which files may be made, read and removed
};

// Restricts this thread, and those that it starts, for good: it opens what `rules` names and nothing else, uses
// no TCP port, and reaches neither processes nor abstract Unix sockets outside. Applies every right that both
// the kernel and this code know. Returns what the kernel cannot restrict, for a log; empty = nothing.
// Paths that do not exist need no rule. REQUIRES: no_new_privs.
[[nodiscard]] std::string RestrictThreadFiles(const FileRules& rules);

}  // namespace quire::runner::engine
