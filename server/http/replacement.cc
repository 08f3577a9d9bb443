#include "server/http/replacement.h"

#include <tuple>

namespace quire::server {

bool ReplacedBefore(const Idleness& one, const Idleness& other, std::chrono::steady_clock::time_point now) {
  const auto rank = [now](const Idleness& idle) {
    const bool closing = idle.stage == Idleness::Stage::kClosing;
    return std::tuple(!closing, !closing && now - idle.since < kFreshTime, idle.stage, idle.since);
  };
  return rank(one) < rank(other);
}

}  // namespace quire::server
