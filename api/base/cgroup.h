// The control groups (cgroup v2) that this process is in.
#pragma once

#include <filesystem>
#include <vector>

namespace quire::api {

// Their folders, from this process's own up to the root; empty without cgroup v2. Every limit found on the
// way holds. `root`: where /proc and /sys are.
std::vector<std::filesystem::path> OwnCgroups(const std::filesystem::path& root = "/");

}  // namespace quire::api
