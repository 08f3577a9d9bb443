// Files that belong to this program, found beside it: an installation may lie in any folder.
#pragma once

#include <filesystem>

#include "api/base/error.h"
#include "server/options.h"

namespace quire::server {

// The folder of the running program.
std::filesystem::path ExecutableDirectory();

// Options::runner, or quire-runner beside this program or below ../lib or ../libexec. kUnavailable names all
// paths that were tried.
api::Result<std::filesystem::path> FindRunner(const Options& options);

}  // namespace quire::server
