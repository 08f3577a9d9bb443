#include "server/cli/fleet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <sstream>
#include <utility>

#include "server/cli/table.h"
#include "server/cli/terminal.h"
#include "server/fleet/fleet_node.h"
#include "server/registry/http.h"

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

std::string AuthoritiesOf(const FleetOptions& options) {
  const char* variable = std::getenv("QUIRE_FLEET_CA");
  return options.ca_file.empty() && variable != nullptr ? variable : options.ca_file;
}

api::Result<NodeReport> RequestReport(const FleetNode& node, const std::string& authorities) {
  const bool literal = node.host.find(':') != std::string::npos;  // of IPv6
  server::registry::Request request{
      .url = fmt::format("{}://{}{}{}:{}/quire/node", node.tls ? "https" : "http", literal ? "[" : "",
                         node.host, literal ? "]" : "", node.port),
      .time_max = kStatusTimeout,
      .authorities = authorities};
  if (const std::string_view key = ApiKey(); !key.empty())
    request.headers.push_back(fmt::format("Authorization: Bearer {}", key));
  const server::registry::AddressPolicy trusted({node.host});
  const std::atomic<bool> never = false;
  const auto reply = server::registry::Http(trusted, never).Exchange(request);
  if (!reply)
    return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: {}", node.name, reply.error().message));
  if (reply->status != 200) {
    return api::Fail(api::CodeOf(reply->status), fmt::format("{} ({}:{}): HTTP {} for /quire/node", node.name,
                                                             node.host, node.port, reply->status));
  }
  return server::ParseNodeReport(reply->body);
}

// All nodes at once.
Reports RequestReports(const std::vector<FleetNode>& nodes, const std::string& authorities) {
  std::vector<std::future<api::Result<NodeReport>>> answers;
  for (const FleetNode& node : nodes)
    answers.push_back(
        std::async(std::launch::async, [&node, &authorities] { return RequestReport(node, authorities); }));
  Reports reports;
  for (size_t i = 0; i < nodes.size(); ++i) reports.emplace_back(nodes[i].name, answers[i].get());
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
  const std::string authorities = AuthoritiesOf(options);
  if (!authorities.empty() && ::access(authorities.c_str(), R_OK) != 0) {
    return PrintError(
        {api::ErrorCode::kInvalidArgument, fmt::format("cannot read the certificates {}", authorities)});
  }
  const Reports reports = RequestReports(nodes, authorities);
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
