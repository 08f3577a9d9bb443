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
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"

namespace quire::server {

struct FleetNode {
  std::string name;  // of the server in HAProxy's configuration
  std::string host;
  uint16_t port = 11434;
};

// "NAME=HOST[:PORT]". Errors name it.
api::Result<FleetNode> ParseFleetNode(std::string_view text);
// All of them; errors also: no node, a name twice, more than NodePicker::kNodesMax.
api::Result<std::vector<FleetNode>> ParseFleetNodes(const std::vector<std::string>& texts);

class PickerAgent {
 public:
  struct Options {
    std::string listen_host = "127.0.0.1";
    uint16_t listen_port = 11435;
    std::vector<FleetNode> nodes = {};
    std::string api_key = {};  // for GET /quire/node; empty: none
    std::chrono::milliseconds report_interval{500};
    std::chrono::milliseconds report_timeout{3000};
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
