#include "server/fleet/fleet_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/base/parse_integer.h"

namespace quire::server {
namespace {

constexpr std::string_view kHttps = "https://";
constexpr uint16_t kHttpsPort = 443;

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.';
}

}  // namespace

api::Result<FleetNode> ParseFleetNode(std::string_view text) {
  const auto invalid = [text] {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("\"{}\" is not a node: NAME=[https://]HOST[:PORT]", text));
  };
  const size_t mark = text.find('=');
  if (mark == std::string_view::npos || mark == 0) return invalid();
  FleetNode node{.name = std::string(text.substr(0, mark)), .host = {}};
  if (!std::ranges::all_of(node.name, IsNameCharacter)) return invalid();
  std::string_view host = text.substr(mark + 1);
  std::string_view port;
  if (host.starts_with(kHttps)) {
    host.remove_prefix(kHttps.size());
    node.tls = true;
    node.port = kHttpsPort;
  }
  if (host.starts_with('[')) {
    const size_t close = host.find(']');
    if (close == std::string_view::npos) return invalid();
    if (host.size() > close + 1 && host[close + 1] != ':') return invalid();
    if (host.size() > close + 1) port = host.substr(close + 2);
    host = host.substr(1, close - 1);
  } else if (const size_t colon = host.rfind(':'); colon != std::string_view::npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
    if (port.empty()) return invalid();
  }
  if (host.empty() || host.find_first_of("/ ") != std::string_view::npos) return invalid();
  node.host = host;
  if (port.empty()) return node;
  node.port = api::ParseInteger<uint16_t>(port).value_or(0);
  if (node.port == 0) return invalid();
  return node;
}

api::Result<std::vector<FleetNode>> ParseFleetNodes(const std::vector<std::string>& texts) {
  std::vector<FleetNode> nodes;
  nodes.reserve(texts.size());
  for (const std::string& text : texts) {
    auto node = ParseFleetNode(text);
    if (!node) return std::unexpected(std::move(node).error());
    if (std::ranges::find(nodes, node->name, &FleetNode::name) != nodes.end())
      return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("two nodes are named {}", node->name));
    nodes.push_back(*std::move(node));
  }
  if (nodes.empty() || nodes.size() > kFleetNodesMax) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("a fleet has 1 to {} nodes: NAME=HOST[:PORT] ...", kFleetNodesMax));
  }
  return nodes;
}

}  // namespace quire::server
