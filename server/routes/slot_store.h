// What llama.cpp's slots remember, and the named snapshots made of them: the token ids of a prompt and its answer. The
// computed state is in the runner's prefix cache; a snapshot whose state was evicted is computed again. I/O thread
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/ids.h"

namespace quire::server {

// Slots and snapshots are apart for every credential and model.
struct SlotOwner {
  std::string tenant;  // as api::Client has it
  std::string model;   // digest
  auto operator<=>(const SlotOwner&) const = default;
};

struct SlotPrefix {
  std::vector<api::TokenId> tokens;
  std::string cache_salt = {};
  int32_t num_ctx = 0;  // as the request had it
};

class SlotStore {
 public:
  explicit SlotStore(size_t tokens_max = size_t{16} << 20) : tokens_max_(tokens_max) {}

  // Replaces what the slot remembers. The slots recorded first are cleared when all together have too many tokens.
  void Record(const SlotOwner& owner, int32_t slot, SlotPrefix prefix);
  // Null: the slot is empty. Valid until the next call that changes something.
  const SlotPrefix* FindSlot(const SlotOwner& owner, int32_t slot) const;
  // The number of tokens that the slot remembered.
  size_t Erase(const SlotOwner& owner, int32_t slot);

  // Replaces the snapshot of this name. kTooLarge: all snapshots together would have too many tokens.
  api::Result<void> Save(const SlotOwner& owner, const std::string& name, SlotPrefix prefix);
  const SlotPrefix* FindSnapshot(const SlotOwner& owner, const std::string& name) const;

 private:
  using SlotKey = std::pair<SlotOwner, int32_t>;
  using SnapshotKey = std::pair<SlotOwner, std::string>;
  struct Slot {
    SlotPrefix prefix;
    std::list<SlotKey>::iterator age;
  };

  const size_t tokens_max_;  // of all slots; and of all snapshots
  std::map<SlotKey, Slot> slots_;
  std::list<SlotKey> ages_;  // recorded first at the front
  std::map<SnapshotKey, SlotPrefix> snapshots_;
  size_t slot_tokens_ = 0, snapshot_tokens_ = 0;
};

}  // namespace quire::server
