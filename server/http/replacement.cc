#include "server/http/replacement.h"

#include <tuple>

namespace quire::server {
namespace {

using Stage = Idleness::Stage;
using Clock = std::chrono::steady_clock;

enum class Group : uint8_t { kClosing, kSilent, kCostly };

bool IsFresh(const Idleness& idle, Clock::time_point now) {
  return idle.stage != Stage::kClosing && now - idle.since < kFreshTime;
}

Group GroupOf(const Idleness& idle, Clock::time_point now) {
  if (idle.stage == Stage::kClosing) return Group::kClosing;
  return idle.stage == Stage::kBeforeRequest && !IsFresh(idle, now) ? Group::kSilent : Group::kCostly;
}

}  // namespace

std::optional<Stage> StageOfUnread(const WaitingWrite& write) {
  const bool stream = write.kind == AnswerKind::kStream;
  if (write.lag < (stream ? kUnreadStreamTime : kFreshTime)) return std::nullopt;
  return stream ? Stage::kUnreadStream : Stage::kUnreadAnswer;
}

bool MayReplace(size_t party_connections, const Idleness& idle, Clock::time_point now) {
  if (idle.stage == Stage::kBusy) return idle.party_connections > party_connections + 1;
  return GroupOf(idle, now) != Group::kCostly || idle.party_connections >= party_connections;
}

bool ReplacedBefore(const Idleness& one, const Idleness& other, Clock::time_point now) {
  const auto rank = [now](const Idleness& idle) {
    return std::tuple(GroupOf(idle, now), -static_cast<int64_t>(idle.party_connections),
                      idle.stage == Stage::kUnreadStream, IsFresh(idle, now), idle.stage, idle.since);
  };
  return rank(one) < rank(other);
}

}  // namespace quire::server
