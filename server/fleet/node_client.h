// Asks a node of a fleet for its report.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <string>

#include "api/base/error.h"
#include "server/fleet/node_report.h"
#include "server/fleet/picker_agent.h"

namespace quire::server {

// GET /quire/node. Node and key outlive the call. kUnavailable: no answer within `timeout`; otherwise what the status stands for.
boost::asio::awaitable<api::Result<NodeReport>> RequestReport(const FleetNode& node,
                                                              const std::string& api_key,
                                                              std::chrono::milliseconds timeout);

}  // namespace quire::server
