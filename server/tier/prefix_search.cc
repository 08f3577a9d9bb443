#include "server/tier/prefix_search.h"

#include <algorithm>
#include <vector>

namespace quire::server {
namespace {

// Asked for at once: more ends than a prompt of any length has in practice.
constexpr size_t kEndsMax = 4096;
// Fewer tokens are computed sooner than asked for.
constexpr int64_t kTokensMin = 32;

}  // namespace

bool PrefixSearch::Has(int64_t to, bool state) const {
  return disk_.Has(local_.Object(to, state)) ||
         (!in_redis_.empty() && in_redis_.contains(remote_.Object(to, state)));
}

uint64_t PrefixSearch::BytesOf(int64_t to, bool state) const {
  if (const uint64_t bytes = disk_.BytesOf(local_.Object(to, state)); bytes > 0) return bytes;
  if (in_redis_.empty()) return 0;
  const auto found = in_redis_.find(remote_.Object(to, state));
  return found == in_redis_.end() ? 0 : found->second;
}

int64_t PrefixSearch::LongestOf(int64_t matched, int64_t restorable) const {
  const int64_t size = local_.tokens();
  const int64_t segment_tokens = local_.segment_tokens();
  int64_t longest = 0;
  for (int64_t begin = restorable / segment_tokens * segment_tokens; begin < size; begin += segment_tokens) {
    const int64_t end = begin + segment_tokens;
    std::vector<int64_t> ends = disk_.EndsBehind(local_.Prefix(begin));
    if (!redis_ends_.empty()) {
      const auto more = redis_ends_.find(remote_.Prefix(begin));
      if (more != redis_ends_.end()) ends.insert(ends.end(), more->second.begin(), more->second.end());
    }
    for (const int64_t to : ends) {
      if (to <= std::max(begin, restorable) || to > end || to >= size) continue;
      if (!Has(to, false)) continue;
      if (needs_state_ && !Has(to, true)) continue;
      longest = std::max(longest, to);
    }
    // What begins behind needs this one, unless the runner has it.
    if (end > size || (end > matched && !Has(end, false))) break;
  }
  return longest;
}

// Where segments end, then which of them there are. `missing`: tokens that neither the runner nor the disk
// has.
void PrefixSearch::QueryRedis(int64_t restorable, int64_t missing) {
  const int64_t size = remote_.tokens();
  const int64_t segment_tokens = remote_.segment_tokens();
  std::vector<SnapshotKey> parents;
  for (int64_t begin = restorable / segment_tokens * segment_tokens;
       begin < size && parents.size() < kEndsMax; begin += segment_tokens) {
    parents.push_back(remote_.Prefix(begin));
  }
  const auto ends = redis_->LookUp({}, parents, missing);
  if (!ends) return;
  std::vector<SnapshotKey> keys;
  for (size_t i = 0; i < parents.size(); ++i) {
    for (const int64_t to : ends->ends[i]) {
      if (to > size || keys.size() >= kEndsMax) continue;
      keys.push_back(remote_.Object(to, false));
      if (needs_state_) keys.push_back(remote_.Object(to, true));
    }
    redis_ends_[parents[i]] = ends->ends[i];
  }
  if (keys.empty()) return;
  const auto segments = redis_->LookUp(keys, {}, missing);
  if (!segments) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (segments->bytes[i] > 0) in_redis_[keys[i]] = segments->bytes[i];
  }
}

int64_t PrefixSearch::Longest(int64_t matched, int64_t restorable) {
  const int64_t on_disk = LongestOf(matched, restorable);
  const int64_t missing = local_.tokens() - std::max(on_disk, restorable);
  if (redis_ == nullptr || missing < kTokensMin) return on_disk;
  QueryRedis(restorable, missing);
  return in_redis_.empty() ? on_disk : LongestOf(matched, restorable);
}

}  // namespace quire::server
