// What llama.cpp's slots remember, and the named snapshots made of them: the token ids of a prompt and its
// answer. The computed state is in the runner's prefix cache; a snapshot whose state was evicted is computed
// again. I/O thread only.
//
// Memory is shared by parties: anybody may make up as many tenants as it likes. Where it is full, the party
// that is furthest above its share makes room, so that nobody can keep others from slots or snapshots.
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

  // Replaces what the slot remembers. When all slots together have too many tokens, those that the party
  // furthest above its share recorded first are cleared, else those of this one; where that is not enough the
  // slot is empty.
  void Record(const SlotOwner& owner, const fair::PartyId& party, int32_t slot, SlotPrefix prefix);
  // Null: the slot is empty. Valid until the next call that changes something.
  const SlotPrefix* FindSlot(const SlotOwner& owner, int32_t slot) const { return slots_.Find(owner, slot); }
  // The number of tokens that the slot remembered.
  size_t Erase(const SlotOwner& owner, int32_t slot) { return slots_.Erase(owner, slot); }

  // Replaces the snapshot of this name. Where all snapshots together would have too many tokens, the party
  // furthest above its share loses those it saved first. kTooLarge: none has more than this one would have.
  api::Result<void> Save(const SlotOwner& owner, const fair::PartyId& party, const std::string& name,
                         SlotPrefix prefix);
  const SlotPrefix* FindSnapshot(const SlotOwner& owner, const std::string& name) const {
    return snapshots_.Find(owner, name);
  }

 private:
  const size_t tokens_max_;  // of all slots; and of all snapshots
  PrefixTable<int32_t> slots_;
  PrefixTable<std::string> snapshots_;
};

}  // namespace quire::server
