#include "server/store/blob_users.h"

#include <algorithm>
#include <utility>

#include "api/base/io_thread.h"

namespace quire::server {
namespace {

constexpr size_t kOfBlobMax = 64;
constexpr size_t kOfPartyMax = 8192;  // twice what one create may name
constexpr size_t kPromisesMax = 32'768;

void EraseFrom(auto& ages_by_key, const auto& key, auto place) {
  const auto ages = ages_by_key.find(key);
  ages->second.erase(place);
  if (ages->second.empty()) ages_by_key.erase(ages);
}

}  // namespace

void BlobUsers::Lease::Add(const std::string& blob) noexcept {
  blobs_.push_back(blob);
  const api::MutexLock lock(users_.mutex_);
  ++users_.held_[blob];
}

void BlobUsers::Lease::Redeem(const std::string& blob, const fair::PartyId& party) {
  Add(blob);
  users_.BreakOne(blob, party, true);
}

void BlobUsers::Lease::Release() {
  for (const std::string& blob : std::exchange(blobs_, {})) {
    const api::MutexLock lock(users_.mutex_);
    const auto held = users_.held_.find(blob);
    if (--held->second == 0) users_.held_.erase(held);
  }
}

void BlobUsers::Promise(const std::string& blob, const fair::PartyId& party, Clock::time_point now) {
  const api::MutexLock lock(mutex_);
  Promises given(1, {.blob = blob, .party = party, .at = now});
  Ages in_blob(1, given.begin());
  Ages in_party(1, given.begin());
  Ages& blobs = of_blob_[blob];
  Ages& parties = of_party_[party.number()];
  // Nothing below allocates.
  given.front().in_blob = in_blob.begin();
  given.front().in_party = in_party.begin();
  blobs.splice(blobs.end(), in_blob);
  parties.splice(parties.end(), in_party);
  promises_.splice(promises_.end(), given);
  if (blobs.size() > kOfBlobMax) Break(blobs.front());
  if (parties.size() > kOfPartyMax) Break(parties.front());
  if (promises_.size() > kPromisesMax) Break(promises_.begin());
}

void BlobUsers::Break(Promises::iterator promise) {
  EraseFrom(of_blob_, promise->blob, promise->in_blob);
  EraseFrom(of_party_, promise->party.number(), promise->in_party);
  promises_.erase(promise);
}

void BlobUsers::Withdraw(const std::string& blob, const fair::PartyId& party) {
  BreakOne(blob, party, false);
}

void BlobUsers::BreakOne(const std::string& blob, const fair::PartyId& party, bool or_other) {
  const api::MutexLock lock(mutex_);
  const auto promised = of_blob_.find(blob);
  if (promised == of_blob_.end() || promised->second.empty()) return;
  const Ages& ages = promised->second;
  const auto own = std::ranges::find_if(ages, [&](const auto& given) { return given->party == party; });
  if (own != ages.end()) {
    Break(*own);
  } else if (or_other) {
    Break(ages.front());
  }
}

bool BlobUsers::Free(const std::string& blob, Clock::time_point now) {
  const api::MutexLock lock(mutex_);
  if (held_.contains(blob)) return false;
  while (!promises_.empty() && now - promises_.front().at > kPromiseTime) Break(promises_.begin());
  const auto promised = of_blob_.find(blob);
  return promised == of_blob_.end() || promised->second.empty();
}

void BlobUsers::Remove(const std::string& blob, Clock::time_point now, const std::function<void()>& unlink) {
  api::AssertMayBlock();
  const api::MutexLock lock(removal_);
  if (Free(blob, now)) unlink();
}

void BlobUsers::AwaitRemoval() {
  api::AssertMayBlock();
  const api::MutexLock lock(removal_);
}

}  // namespace quire::server
