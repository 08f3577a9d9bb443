// What llama.cpp's slots remember, and the named snapshots made of them: the token ids of a prompt and its
// answer. The computed state is in the runner's prefix cache; a snapshot whose state was evicted is computed
// again. I/O thread only.
//
// Memory is shared by all tenants. Where it is full, the tenant with most makes room, so that no tenant can
// keep another from its slots or snapshots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "api/base/error.h"
#include "server/routes/prefix_table.h"
#include "server/routes/slot_prefix.h"

namespace quire::server {

class SlotStore {
 public:
  explicit SlotStore(size_t tokens_max = size_t{16} << 20)
      : tokens_max_(tokens_max), slots_(tokens_max), snapshots_(tokens_max) {}

  // Replaces what the slot remembers. When all slots together have too many tokens, those that the tenant
  // with most recorded first are cleared.
  void Record(const SlotOwner& owner, int32_t slot, SlotPrefix prefix);
  // Null: the slot is empty. Valid until the next call that changes something.
  const SlotPrefix* FindSlot(const SlotOwner& owner, int32_t slot) const { return slots_.Find(owner, slot); }
  // The number of tokens that the slot remembered.
  size_t Erase(const SlotOwner& owner, int32_t slot) { return slots_.Erase(owner, slot); }

  // Replaces the snapshot of this name. Where all snapshots together would have too many tokens, the tenant
  // with most loses those it saved first. kTooLarge: no tenant has more than the owner's would have.
  api::Result<void> Save(const SlotOwner& owner, const std::string& name, SlotPrefix prefix);
  const SlotPrefix* FindSnapshot(const SlotOwner& owner, const std::string& name) const {
    return snapshots_.Find(owner, name);
  }

 private:
  const size_t tokens_max_;  // of all slots; and of all snapshots
  PrefixTable<int32_t> slots_;
  PrefixTable<std::string> snapshots_;
};

}  // namespace quire::server
