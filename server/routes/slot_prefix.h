// What a slot or a snapshot of llama.cpp's server remembers, whose it is, and where it outlives the daemon.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
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

// Files of named snapshots. Empty: they end with the daemon. Any thread that may block, but for `ready`.
struct SlotFiles {
  // False: the others would be kUnavailable for now, as the folder is being read. I/O thread.
  std::function<bool()> ready = {};
  // Nothing: there is none. kUnavailable: nobody can know.
  std::function<api::Result<std::optional<SlotPrefix>>(const SlotOwner& owner, const std::string& name)>
      read = {};
  // Replaces what has this name. kUnavailable: there is none now.
  std::function<api::Result<void>(const SlotOwner& owner, const std::string& name, const SlotPrefix& prefix)>
      write = {};
};

}  // namespace quire::server
