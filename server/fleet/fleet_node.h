// The nodes of a fleet, as settings name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::server {

inline constexpr size_t kFleetNodesMax = 64;

struct FleetNode {
  std::string name;  // of the server in HAProxy's configuration
  std::string host;
  uint16_t port = 11434;
  bool tls = false;
};

// "NAME=[https://]HOST[:PORT]"; the port is 443 for https, else 11434. Errors name it.
api::Result<FleetNode> ParseFleetNode(std::string_view text);
// All of them; errors also: no node, a name twice, more than kFleetNodesMax.
api::Result<std::vector<FleetNode>> ParseFleetNodes(const std::vector<std::string>& texts);

}  // namespace quire::server
