// quire fleet status: the nodes behind a balancer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "server/cli/client.h"
#include "server/fleet/node_report.h"

namespace quire::cli {

struct FleetOptions {
  std::string action = {};              // status
  std::vector<std::string> nodes = {};  // NAME=[https://]HOST[:PORT]; none: QUIRE_FLEET
  std::string ca_file = {};             // empty: QUIRE_FLEET_CA, else the system's certificates
  bool json = false;
};

// The exit code; errors go to stderr. `daemon`: the node where none is named.
int Fleet(const Endpoint& daemon, const FleetOptions& options);

// A row per node: an error instead of the report of one that did not answer.
std::string FleetTable(const std::vector<std::pair<std::string, api::Result<server::NodeReport>>>& nodes);

}  // namespace quire::cli
