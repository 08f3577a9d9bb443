#include "api/base/memory_limit.h"

#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "api/base/cgroup.h"
#include "api/base/parse_integer.h"

namespace quire::api {
namespace {

namespace fs = std::filesystem;

// Nothing for "max", and for what is not there.
std::optional<int64_t> ReadBytes(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  const auto value = ParseInteger<int64_t>(word);
  return value && *value > 0 ? value : std::nullopt;
}

int64_t MachineBytes(const fs::path& root, std::string_view which) {
  std::ifstream file(root / "proc/meminfo");
  std::string name, unit;
  int64_t kib = 0;
  while (file >> name >> kib >> unit) {
    if (name == which) return kib << 10;
  }
  return 0;
}

}  // namespace

MemoryLimit FindMemoryLimit(const fs::path& root) {
  MemoryLimit limit{.bytes = MachineBytes(root, "MemTotal:"), .from = "the machine"};
  const auto consider = [&limit](const fs::path& path) {
    const auto bytes = ReadBytes(path);
    if (bytes && (limit.bytes == 0 || *bytes < limit.bytes)) limit = {*bytes, path.string()};
  };
  for (const fs::path& group : OwnCgroups(root)) {
    consider(group / "memory.max");
    consider(group / "memory.high");
  }
  for (const fs::path& group : OwnVersionOneCgroups(root, "memory"))
    consider(group / "memory.limit_in_bytes");
  return limit;
}

int64_t FindAvailableMemory(const fs::path& root) { return MachineBytes(root, "MemAvailable:"); }

}  // namespace quire::api
