// The agent that HAProxy asks for a node: listens for its Stream Processing Offload Protocol, and asks the nodes for their
// reports. One thread runs all of it. It has no state that matters: after a restart rendezvous hashing finds most
// conversations again (node_picker.h).
//
// A message has the arguments "body" and, optionally, "key", "api_key": the request's body and what its client presents.
// The answer sets the variable "node" of the transaction, or nothing where no node is known to be ready: HAProxy then
// balances by itself, as it does where the agent is absent or slow.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/fleet/fleet_node.h"
#include "server/fleet/node_client.h"

namespace quire::server {

class PickerAgent {
 public:
  struct Options {
    std::string listen_host = "127.0.0.1";
    uint16_t listen_port = 11435;
    std::vector<FleetNode> nodes = {};
    NodeAccess access = {};
    std::chrono::milliseconds report_interval{500};
  };

  explicit PickerAgent(Options options);
  PickerAgent(const PickerAgent&) = delete;
  PickerAgent& operator=(const PickerAgent&) = delete;
  ~PickerAgent();

  // Binds. Port 0 takes a free one. The value is the port.
  api::Result<uint16_t> Listen();
  // Serves until SIGTERM or SIGINT, or Stop().
  void Run();
  void Stop();  // from any thread

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
