// Prefixes that clients named (llama.cpp's slots): their tokens, as files of the disk tier. What was computed
// of them is stored as any prefix is. They count for the tier's budget and are evicted by its order.
// Any thread but the I/O thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "server/tier/disk_tier.h"

namespace quire::server {

struct PrefixName {
  std::string isolation;  // api::Client::IsolationKey()
  std::string model;      // digest
  std::string name;
};

struct NamedPrefix {
  std::vector<int32_t> tokens;
  std::string text;  // of the caller
};

// Replaces the prefix of this name: where it cannot be written there is none. kUnavailable.
api::Result<void> SaveNamedPrefix(DiskTier& tier, const PrefixName& name, std::span<const int32_t> tokens,
                                  std::string_view text);
// Nothing: there is none, or it was not what was written.
std::optional<NamedPrefix> ReadNamedPrefix(DiskTier& tier, const PrefixName& name);

}  // namespace quire::server
