#include "api/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace quire::api {
namespace {

// Whether a list of version 1's controllers, such as "cpu,cpuacct", has this one.
bool HasController(std::string_view list, std::string_view controller) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, end - begin) == controller) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::vector<std::filesystem::path> OwnVersionOneCgroups(const std::filesystem::path& root,
                                                        std::string_view controller) {
  std::vector<std::filesystem::path> folders;
  std::ifstream self(root / "proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {  // "4:cpu,cpuacct:/a/b"
    const size_t list = line.find(':') + 1, path = line.find(":/", list);
    if (list == 0 || path == std::string::npos) continue;
    if (!HasController(std::string_view(line).substr(list, path - list), controller)) continue;
    for (std::filesystem::path group = line.substr(path + 2);; group = group.parent_path()) {
      folders.push_back(root / "sys/fs/cgroup" / controller / group);
      if (group.empty()) break;
    }
  }
  return folders;
}

std::vector<std::filesystem::path> OwnCgroups(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> folders;
  std::ifstream self(root / "proc/self/cgroup");
  for (std::string line; std::getline(self, line);) {
    if (!line.starts_with("0::")) continue;
    const std::filesystem::path tree = root / "sys/fs/cgroup";
    std::filesystem::path group = line.substr(3);
    while (true) {
      folders.push_back(tree / group.relative_path());
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
  return folders;
}

}  // namespace quire::api
