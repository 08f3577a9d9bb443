#include "server/store/blob_users.h"

#include <utility>

#include "api/base/io_thread.h"

namespace quire::server {
namespace {

// Of one blob, and of all blobs: the oldest go first.
constexpr size_t kPromisesMax = 64;
constexpr size_t kBlobsMax = 4096;

}  // namespace

void BlobUsers::Lease::Add(const std::string& blob) {
  blobs_.push_back(blob);
  const std::scoped_lock lock(users_.mutex_);
  try {
    ++users_.held_[blob];
  } catch (...) {
    blobs_.pop_back();
    throw;
  }
}

void BlobUsers::Lease::Redeem(const std::string& blob) {
  Add(blob);
  users_.Withdraw(blob);
}

void BlobUsers::Lease::Release() {
  for (const std::string& blob : std::exchange(blobs_, {})) {
    const std::scoped_lock lock(users_.mutex_);
    const auto held = users_.held_.find(blob);
    if (--held->second == 0) users_.held_.erase(held);
  }
}

void BlobUsers::Promise(const std::string& blob, Clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (promised_.size() >= kBlobsMax) {
    std::erase_if(promised_, [now](const auto& entry) {
      return entry.second.empty() || now - entry.second.back() > kPromiseTime;
    });
  }
  auto& promises = promised_[blob];
  promises.push_back(now);
  if (promises.size() > kPromisesMax) promises.pop_front();
}

void BlobUsers::Withdraw(const std::string& blob) {
  const std::scoped_lock lock(mutex_);
  const auto promised = promised_.find(blob);
  if (promised == promised_.end()) return;
  if (!promised->second.empty()) promised->second.pop_front();
  if (promised->second.empty()) promised_.erase(promised);
}

bool BlobUsers::Free(const std::string& blob, Clock::time_point now) {
  const std::scoped_lock lock(mutex_);
  if (held_.contains(blob)) return false;
  const auto promised = promised_.find(blob);
  if (promised == promised_.end()) return true;
  while (!promised->second.empty() && now - promised->second.front() > kPromiseTime)
    promised->second.pop_front();
  if (!promised->second.empty()) return false;
  promised_.erase(promised);
  return true;
}

void BlobUsers::Remove(const std::string& blob, Clock::time_point now, const std::function<void()>& unlink) {
  api::AssertMayBlock();
  const std::scoped_lock lock(removal_);
  if (Free(blob, now)) unlink();
}

void BlobUsers::AwaitRemoval() {
  api::AssertMayBlock();
  const std::scoped_lock lock(removal_);
}

}  // namespace quire::server
