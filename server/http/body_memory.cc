#include "server/http/body_memory.h"

#include <fmt/format.h>

namespace quire::server {
namespace {

bool Exceeds(uint64_t others, uint64_t bytes, uint64_t limit) {
  return others > limit || bytes > limit - others;
}

}  // namespace

std::optional<ParseFailure> BodyMemoryLease::ReasonAgainst(uint64_t bytes) const {
  const api::MutexLock lock(*memory_.mutex_);
  return ReasonFor(bytes);
}

std::optional<ParseFailure> BodyMemoryLease::ReasonFor(uint64_t bytes) const {
  if (bytes <= leased_) return std::nullopt;
  const ParseFailure full{503, fmt::format("too many {} in memory", limits_.what)};
  if (Exceeds(memory_.held_ - leased_, bytes, limits_.all)) return full;
  if (!IsLarge(bytes)) return std::nullopt;
  const uint64_t own = IsLarge(leased_) ? leased_ : 0;
  if (Exceeds(memory_.large_ - own, bytes, limits_.large)) return full;
  const auto party = memory_.parties_.find(party_);
  const uint64_t of_party = (party == memory_.parties_.end() ? 0 : party->second) - own;
  const bool leaves_room = LeavesRoom(of_party + bytes, memory_.large_ - own - of_party);
  if (!Exceeds(of_party, bytes, limits_.party) && leaves_room) return std::nullopt;
  if (of_party == 0) return full;
  return ParseFailure{429, fmt::format("too many large {} of this client in memory", limits_.what)};
}

// A party beside others leaves half as much as it has, so that they never have all of it, however many they
// are: each that comes gets two thirds of what is left. Others with little take nothing from it. (Dynamic
// thresholds: Choudhury and Hahne, 1998.)
bool BodyMemoryLease::LeavesRoom(uint64_t of_party, uint64_t of_others) const {
  const uint64_t left = limits_.large - of_others - of_party;
  return of_others <= limits_.large / 16 || of_party <= 2 * left;
}

std::optional<ParseFailure> BodyMemoryLease::GrowTo(uint64_t bytes) {
  const api::MutexLock lock(*memory_.mutex_);
  if (auto reason = ReasonFor(bytes)) return reason;
  if (bytes > leased_) Set(bytes);
  return std::nullopt;
}

void BodyMemoryLease::ShrinkTo(uint64_t bytes) {
  const api::MutexLock lock(*memory_.mutex_);
  if (bytes < leased_) Set(bytes);
}

// What the body holds from now on; 0: nothing.
void BodyMemoryLease::Set(uint64_t bytes) {
  if (IsLarge(bytes) || IsLarge(leased_)) {
    uint64_t& party = memory_.parties_[party_];
    const uint64_t before = IsLarge(leased_) ? leased_ : 0;
    const uint64_t after = IsLarge(bytes) ? bytes : 0;
    party += after - before;
    memory_.large_ += after - before;
    if (party == 0) memory_.parties_.erase(party_);
  }
  memory_.held_ += bytes - leased_;
  leased_ = bytes;
}

}  // namespace quire::server
