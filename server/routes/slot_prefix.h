// What a slot or a snapshot of llama.cpp's server remembers, and whose it is. Plain data.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace quire::server
