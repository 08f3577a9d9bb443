// Asks a node of a fleet for its report.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "api/base/error.h"
#include "server/fleet/fleet_node.h"
#include "server/fleet/node_report.h"

namespace quire::server {

// What all questions to nodes have in common.
struct NodeAccess {
  std::string api_key = {};  // empty: none
  std::chrono::milliseconds timeout{3000};
  std::shared_ptr<boost::asio::ssl::context> tls = {};  // of NodeTls(); not null where a node has TLS
};

// Verifies nodes by the certificates in this file (PEM), or by the system's where it is empty. kInvalidArgument: it cannot be
// read.
api::Result<std::shared_ptr<boost::asio::ssl::context>> NodeTls(const std::filesystem::path& ca_file);

// GET /quire/node. Both outlive the call. kUnavailable: no answer within the timeout, or a certificate that is not the
// node's; otherwise what the status stands for.
boost::asio::awaitable<api::Result<NodeReport>> RequestReport(const FleetNode& node,
                                                              const NodeAccess& access);

}  // namespace quire::server
