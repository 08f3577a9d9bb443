#include "server/program_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <vector>

namespace quire::server {

namespace fs = std::filesystem;

fs::path ExecutableDirectory() {
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  return ec ? fs::path(".") : self.parent_path();
}

api::Result<fs::path> FindRunner(const Options& options) {
  const fs::path here = ExecutableDirectory();
  std::vector<fs::path> places = {here / "quire-runner", here / "../lib/quire/quire-runner",
                                  here / "../libexec/quire/quire-runner"};
  if (!options.runner.empty()) places = {options.runner};
  std::string looked;
  for (const fs::path& place : places) {
    if (::access(place.c_str(), X_OK) == 0) return fs::absolute(place).lexically_normal();
    looked += (looked.empty() ? "" : ", ") + place.lexically_normal().string();
  }
  return api::Fail(
      api::ErrorCode::kUnavailable,
      fmt::format("no executable quire-runner at {}; set its path with --runner or QUIRE_RUNNER", looked));
}

}  // namespace quire::server
