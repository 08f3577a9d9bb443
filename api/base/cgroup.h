// The control groups that this process is in.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace quire::api {

// Version 2: their folders, from this process's own up to the root; empty without it. Every limit found on
// the way holds. `root`: where /proc and /sys are.
std::vector<std::filesystem::path> OwnCgroups(const std::filesystem::path& root = "/");

// The same of one of version 1's controllers, such as "memory"; empty where it is not in use.
std::vector<std::filesystem::path> OwnVersionOneCgroups(const std::filesystem::path& root,
                                                        std::string_view controller);

}  // namespace quire::api
