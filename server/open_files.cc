#include "server/open_files.h"

#include <sys/resource.h>

#include <algorithm>

namespace quire::server {
namespace {

constexpr uint64_t kReserveMin = 64;

}  // namespace

uint64_t RaiseOpenFileLimit(uint64_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::max(before, std::min<rlim_t>(limit.rlim_max, wanted));
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

size_t ConnectionLimit(size_t configured, uint64_t open_files) {
  const uint64_t reserve = std::min(open_files / 2, std::max(kReserveMin, open_files / 8));
  return static_cast<size_t>(
      std::clamp<uint64_t>(configured, 1, std::max<uint64_t>(1, open_files - reserve)));
}

}  // namespace quire::server
