#include "runner/engine/cache_budget.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "runner/engine/admission.h"
#include "runner/engine/cgroup.h"
#include "runner/engine/prefill_budget.h"

namespace quire::runner::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
constexpr int64_t kShortSequence = 512;  // tokens

std::optional<size_t> ReadNumber(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  size_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;  // "max"
  return value;
}

size_t MachineMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  size_t kib = 0;
  std::string unit;
  while (file >> name >> kib >> unit) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return kUnlimited;
}

// What the tightest cgroup leaves.
size_t CgroupMemory() {
  size_t least = kUnlimited;
  for (const fs::path& group : OwnCgroups()) {
    const auto most = ReadNumber(group / "memory.max");
    if (!most) continue;
    const size_t used = ReadNumber(group / "memory.current").value_or(0);
    least = std::min(least, *most - std::min(*most, used));
  }
  return least;
}

}  // namespace

size_t AvailableMemory() { return std::min(MachineMemory(), CgroupMemory()); }

size_t CacheBudget(const cache::Layout& layout, int32_t context_length, int64_t asked, size_t available) {
  const int64_t batch = StepTarget().tokens_max;
  const size_t least = SequenceBytes(layout, kShortSequence, batch);
  if (asked > 0) return std::max(static_cast<size_t>(asked), least);
  const size_t whole = SequenceBytes(layout, context_length, batch);
  const size_t usual = std::min(available / 4, kCacheBytesMax);
  return std::max({least, usual, std::min(whole, available / 2)});
}

}  // namespace quire::runner::engine
