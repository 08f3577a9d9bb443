#include "server/routes/slot_store.h"

#include <fmt/format.h>

#include <utility>

namespace quire::server {

void SlotStore::Record(const SlotOwner& owner, int32_t slot, SlotPrefix prefix) {
  const size_t cost = PrefixTable<int32_t>::CostOf(owner, slot, prefix);
  slots_.Put(owner, slot, std::move(prefix));
  // The one just recorded stays, also where it is larger than all of them may be.
  while (slots_.cost() > tokens_max_ && slots_.cost() > cost) {
    const std::string tenant = slots_.LargestTenant();
    const bool only_this = tenant == owner.tenant && slots_.CostOf(tenant) == cost;
    if (only_this) return;
    slots_.DropOldest(tenant);
  }
}

api::Result<void> SlotStore::Save(const SlotOwner& owner, const std::string& name, SlotPrefix prefix) {
  const size_t cost = PrefixTable<std::string>::CostOf(owner, name, prefix);
  const size_t freed = snapshots_.CostOf(owner, name);
  const size_t own = snapshots_.CostOf(owner.tenant) - freed + cost;
  const auto too_large = [&] { return snapshots_.cost() - freed + cost > tokens_max_; };
  while (too_large()) {
    const std::string tenant = snapshots_.cost() > 0 ? snapshots_.LargestTenant() : owner.tenant;
    const bool others_have_more = tenant != owner.tenant && snapshots_.CostOf(tenant) > own;
    if (!others_have_more) {
      return api::Fail(api::ErrorCode::kTooLarge,
                       fmt::format("all snapshots together have at most {} tokens", tokens_max_), "filename");
    }
    snapshots_.DropOldest(tenant);
  }
  snapshots_.Put(owner, name, std::move(prefix));
  return {};
}

}  // namespace quire::server
