#include "server/routes/slot_store.h"

#include <fmt/format.h>

namespace quire::server {
namespace {

// An entry costs memory beside its tokens.
constexpr size_t kEntryTokens = 64;

size_t CostOf(const SlotPrefix& prefix) { return prefix.tokens.size() + kEntryTokens; }

}  // namespace

void SlotStore::Record(const SlotOwner& owner, int32_t slot, SlotPrefix prefix) {
  Erase(owner, slot);
  const SlotKey key{owner, slot};
  slot_tokens_ += CostOf(prefix);
  slots_.emplace(key, Slot{std::move(prefix), ages_.insert(ages_.end(), key)});
  while (slot_tokens_ > tokens_max_ && ages_.size() > 1) {
    const SlotKey oldest = ages_.front();
    Erase(oldest.first, oldest.second);
  }
}

const SlotPrefix* SlotStore::FindSlot(const SlotOwner& owner, int32_t slot) const {
  const auto found = slots_.find({owner, slot});
  return found == slots_.end() ? nullptr : &found->second.prefix;
}

size_t SlotStore::Erase(const SlotOwner& owner, int32_t slot) {
  const auto found = slots_.find({owner, slot});
  if (found == slots_.end()) return 0;
  const size_t tokens = found->second.prefix.tokens.size();
  slot_tokens_ -= CostOf(found->second.prefix);
  ages_.erase(found->second.age);
  slots_.erase(found);
  return tokens;
}

api::Result<void> SlotStore::Save(const SlotOwner& owner, const std::string& name, SlotPrefix prefix) {
  const SnapshotKey key{owner, name};
  const auto found = snapshots_.find(key);
  const size_t freed = found == snapshots_.end() ? 0 : CostOf(found->second);
  if (snapshot_tokens_ - freed + CostOf(prefix) > tokens_max_) {
    return api::Fail(api::ErrorCode::kTooLarge,
                     fmt::format("all snapshots together have at most {} tokens", tokens_max_), "filename");
  }
  snapshot_tokens_ += CostOf(prefix) - freed;
  snapshots_.insert_or_assign(key, std::move(prefix));
  return {};
}

const SlotPrefix* SlotStore::FindSnapshot(const SlotOwner& owner, const std::string& name) const {
  const auto found = snapshots_.find({owner, name});
  return found == snapshots_.end() ? nullptr : &found->second;
}

}  // namespace quire::server
