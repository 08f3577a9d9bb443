#include "server/routes/slot_store.h"

#include <fmt/format.h>

#include <utility>

namespace quire::server {

void SlotStore::Record(const SlotOwner& owner, const fair::PartyId& party, int32_t slot, SlotPrefix prefix) {
  slots_.PutFirst(owner, slot, std::move(prefix), party);
}

api::Result<void> SlotStore::Save(const SlotOwner& owner, const fair::PartyId& party, const std::string& name,
                                  SlotPrefix prefix) {
  if (snapshots_.Put(owner, name, std::move(prefix), party)) return {};
  return api::Fail(api::ErrorCode::kTooLarge,
                   fmt::format("all snapshots together have at most {} tokens", tokens_max_), "filename");
}

}  // namespace quire::server
