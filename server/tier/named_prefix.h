// Prefixes that clients named (llama.cpp's slots): their tokens, as files of the disk tier. What was computed
// of them is stored as any prefix is. They count for the tier's budget and are evicted by its order.
// Any thread but the I/O thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "api/base/error.h"
#include "server/routes/slot_prefix.h"
#include "server/tier/disk_tier.h"

namespace quire::server {

// Replaces the prefix of this name: where it cannot be written there is none. kUnavailable.
api::Result<void> SaveNamedPrefix(DiskTier& tier, const SlotOwner& owner, const std::string& name,
                                  const SlotPrefix& prefix);
// Nothing: there is none, or it was not what was written.
std::optional<SlotPrefix> ReadNamedPrefix(DiskTier& tier, const SlotOwner& owner, const std::string& name);

SlotFiles SlotFilesOf(std::function<bool()> ready,
                      std::function<api::Result<std::shared_ptr<DiskTier>>()> find_tier);

}  // namespace quire::server
