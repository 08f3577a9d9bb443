#include "api/base/cgroup.h"

#include <fstream>
#include <string>

namespace quire::api {

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
