#include "server/cli/fleet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <utility>

#include "server/cli/table.h"
#include "server/cli/terminal.h"
#include "server/fleet/node_client.h"

namespace quire::cli {
namespace {

using server::FleetNode;
using server::NodeReport;
using Reports = std::vector<std::pair<std::string, api::Result<NodeReport>>>;

constexpr std::chrono::seconds kStatusTimeout(10);

std::vector<std::string> NodeTexts(const FleetOptions& options) {
  if (!options.nodes.empty()) return options.nodes;
  std::vector<std::string> texts;
  const char* variable = std::getenv("QUIRE_FLEET");
  std::istringstream words(variable != nullptr ? variable : "");
  for (std::string word; words >> word;) texts.push_back(word);
  return texts;
}

api::Result<server::NodeAccess> AccessOf(const FleetOptions& options, const std::vector<FleetNode>& nodes) {
  server::NodeAccess access{.api_key = std::string(ApiKey())};
  if (std::ranges::none_of(nodes, &FleetNode::tls)) return access;
  const char* variable = std::getenv("QUIRE_FLEET_CA");
  auto tls = server::NodeTls(options.ca_file.empty() && variable != nullptr ? variable : options.ca_file);
  if (!tls) return std::unexpected(std::move(tls).error());
  access.tls = *std::move(tls);
  return access;
}

// All nodes at once.
Reports RequestReports(const std::vector<FleetNode>& nodes, server::NodeAccess access) {
  namespace asio = boost::asio;
  access.timeout = kStatusTimeout;
  asio::io_context io(1);
  Reports reports;
  reports.reserve(nodes.size());
  for (const FleetNode& node : nodes)
    reports.emplace_back(node.name, api::Fail(api::ErrorCode::kUnavailable, "no answer"));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto store = [&reports, i](const std::exception_ptr& failure, api::Result<NodeReport> report) {
      if (failure == nullptr) reports[i].second = std::move(report);
    };
    asio::co_spawn(io, server::RequestReport(nodes[i], access), store);
  }
  io.run();
  return reports;
}

std::string ModelText(const NodeReport& report) {
  std::vector<std::string> loaded;
  loaded.reserve(report.models.size());
  for (const auto& [name, model] : report.models) {
    if (model.loaded) loaded.push_back(name);
  }
  return loaded.empty() ? "-" : fmt::format("{}", fmt::join(loaded, ", "));
}

std::string PrefixCounts(const NodeReport& report) {
  return fmt::format("{} ({}), disk {}", report.prefixes, FormatSize(report.prefix_bytes),
                     FormatSize(report.disk_bytes));
}

}  // namespace

std::string FleetTable(const Reports& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "STATE", "RUNNING", "WAITING", "PREFILL", "PREFIXES", "MEMORY", "LOADED MODELS"}};
  std::string errors;
  for (const auto& [name, report] : nodes) {
    if (!report) {
      rows.push_back({name, "unreachable", "-", "-", "-", "-", "-", "-"});
      errors += report.error().message + "\n";
      continue;
    }
    rows.push_back({name, report->ready ? "ready" : "draining", std::to_string(report->running),
                    std::to_string(report->waiting), fmt::format("{:.1f} s", report->pending_prefill_seconds),
                    PrefixCounts(*report), FormatSize(report->memory_bytes), ModelText(*report)});
  }
  return FormatTable(rows) + (errors.empty() ? "" : "\n" + errors);
}

int Fleet(const Endpoint& daemon, const FleetOptions& options) {
  std::vector<FleetNode> nodes = {{.name = "local", .host = daemon.host, .port = daemon.port}};
  if (const auto texts = NodeTexts(options); !texts.empty()) {
    auto parsed = server::ParseFleetNodes(texts);
    if (!parsed) return PrintError(parsed.error());
    nodes = *std::move(parsed);
  }
  auto access = AccessOf(options, nodes);
  if (!access) return PrintError(access.error());
  const Reports reports = RequestReports(nodes, *std::move(access));
  if (options.json) {
    for (const auto& [name, report] : reports) fmt::print("{}\n", server::EncodeReport(name, report));
  } else {
    fmt::print("{}", FleetTable(reports));
  }
  for (const auto& [name, report] : reports) {
    if (!report || !report->ready) return 1;
  }
  return 0;
}

}  // namespace quire::cli
