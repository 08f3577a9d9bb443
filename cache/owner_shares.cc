#include "cache/owner_shares.h"

#include <algorithm>
#include <new>
#include <utility>

namespace quire::cache {

OwnerShares::Claim::Claim(Claim&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      runs_(other.runs_),
      used_(other.used_) {}

OwnerShares::Claim& OwnerShares::Claim::operator=(Claim&& other) noexcept {
  Claim old(std::move(*this));
  owner_ = std::exchange(other.owner_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  runs_ = other.runs_;
  used_ = other.used_;
  return *this;
}

OwnerShares::Claim::~Claim() {
  if (owner_ == nullptr) return;
  SetBytes(0);
  Exit(*owner_);
}

void OwnerShares::Claim::SetBytes(size_t bytes) {
  if (owner_ == nullptr) return;
  owner_->bytes += bytes - bytes_;
  if (runs_) owner_->held += bytes - bytes_;
  bytes_ = bytes;
}

OwnerShares::Claim OwnerShares::Claim::Copy() const {
  Claim copy;
  if (owner_ == nullptr) return copy;
  copy.owner_ = owner_;
  copy.used_ = used_;
  ++owner_->claims;
  return copy;
}

OwnerShares::Claim OwnerShares::Enter(std::string_view owner) {
  auto found = owners_.find(owner);
  if (found == owners_.end()) {
    found = owners_.emplace(std::string(owner), Share{.shares = this, .name = std::string(owner)}).first;
  }
  Claim claim;
  claim.owner_ = &found->second;
  claim.used_ = Clock::now();
  found->second.used = claim.used_;
  ++found->second.claims;
  return claim;
}

OwnerShares::Claim OwnerShares::EnterRunning(std::string_view owner) {
  Claim claim = Enter(owner);
  claim.runs_ = true;
  return claim;
}

void OwnerShares::Use(Claim& claim, std::string_view owner) {
  const auto now = Clock::now();
  if (claim.owner_ != nullptr && claim.owner_->name == owner) {
    claim.used_ = now;
    claim.owner_->used = now;
    return;
  }
  if (claim.owner_ != nullptr && now - claim.used_ <= spared_for_) return;
  try {
    Claim taken = Enter(owner);
    taken.SetBytes(claim.bytes_);
    claim = std::move(taken);
  } catch (const std::bad_alloc&) {
    return;
  }
}

OwnerShares::Spared OwnerShares::AllButLargest() const {
  Spared spared{.since = Clock::now() - spared_for_};
  size_t largest = 0;
  for (const auto& [name, owner] : owners_) {
    if (IsHere(owner, spared.since)) largest = std::max(largest, owner.bytes);
  }
  if (owners_.size() > 1 && largest > 0) spared.bytes_max = largest - 1;
  return spared;
}

size_t OwnerShares::DueTo(const Share& owner, const Due& due) {
  if (!IsHere(owner, due.since)) return 0;
  const size_t part = std::min(owner.bytes, due.part);
  return part - std::min(part, owner.held);
}

OwnerShares::Due OwnerShares::BytesDue(size_t budget_bytes) const {
  Due due{.since = Clock::now() - spared_for_};
  const auto here =
      std::ranges::count_if(owners_, [&](const auto& owner) { return IsHere(owner.second, due.since); });
  if (here == 0) return due;
  due.part = budget_bytes / static_cast<size_t>(here);
  for (const auto& [name, owner] : owners_) due.total += DueTo(owner, due);
  return due;
}

size_t OwnerShares::BytesDueToOthers(const Due& due, std::string_view owner) const {
  const auto found = owners_.find(owner);
  return due.total - (found == owners_.end() ? 0 : DueTo(found->second, due));
}

void OwnerShares::Exit(Share& owner) {
  if (--owner.claims > 0) return;
  auto& owners = owner.shares->owners_;
  owners.erase(owners.find(owner.name));
}

}  // namespace quire::cache
