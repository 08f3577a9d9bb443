#include "server/listen_plan.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <utility>

#include "server/notify.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// IPv4 first.
api::Result<tcp::endpoint> Resolve(const HostAddress& host) {
  boost::system::error_code ec;
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host.host, std::to_string(host.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("cannot resolve the host \"{}\": {}", host.host, ec.message()));
  }
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  }
  return found.begin()->endpoint();
}

constexpr std::string_view kWhatToDo =
    "create a key (quire key NAME --append FILE) and add the line QUIRE_KEYS=FILE, or add the line "
    "QUIRE_ALLOW_REMOTE=1 (--allow-remote) to serve everyone who can reach it without authentication";

bool IsProtected(const Options& options) { return options.allow_remote || !options.keys.empty(); }

// Notes whether `endpoint` is beyond this machine, and refuses it when it must not be.
api::Result<void> Allow(ListenPlan& plan, const tcp::endpoint& endpoint, const std::string& name,
                        const Options& options) {
  if (endpoint.address().is_loopback()) return {};
  plan.remote = true;
  if (IsProtected(options)) return {};
  return api::Fail(
      api::ErrorCode::kForbidden,
      fmt::format("{} is not a loopback address and no API keys are configured: {}", name, kWhatToDo));
}

api::Result<std::optional<tcp::endpoint>> PlanOne(ListenPlan& plan, const std::optional<HostAddress>& host,
                                                  const Options& options) {
  if (!host) return std::nullopt;
  auto endpoint = Resolve(*host);
  if (!endpoint) return std::unexpected(endpoint.error());
  if (endpoint->address().is_unspecified() && !IsProtected(options)) {
    endpoint->address(asio::ip::address_v4::loopback());
    plan.warning = fmt::format(
        "{} means every interface and no API keys are configured: listening on {} only; "
        "to serve other machines, {}",
        host->host, endpoint->address().to_string(), kWhatToDo);
  }
  if (const auto allowed = Allow(plan, *endpoint, host->host, options); !allowed) {
    return std::unexpected(allowed.error());
  }
  return *endpoint;
}

}  // namespace

api::Result<ListenPlan> PlanListen(const Options& options) {
  ListenPlan plan;
  plan.unix_socket = options.unix_socket;
  const std::string& host_socket = options.host.unix_socket;
  if (!host_socket.empty() && !plan.unix_socket.empty() && plan.unix_socket != host_socket) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("OLLAMA_HOST names the Unix socket {}, and --unix-socket {}", host_socket,
                                 plan.unix_socket.string()));
  }
  if (!host_socket.empty()) plan.unix_socket = host_socket;
  const auto inherited = InheritedSockets();
  if (!inherited) return std::unexpected(inherited.error());
  for (const InheritedSocket& socket : *inherited) {
    const auto bound = ListeningAddress(socket.fd);
    if (!bound) return std::unexpected(bound.error());
    const std::string address = *bound ? Describe(**bound) : "unix:" + socket.name;
    if (*bound) {
      const auto allowed = Allow(plan, **bound, "the inherited socket " + address, options);
      if (!allowed) return std::unexpected(allowed.error());
    }
    const bool tls = *bound && socket.name.ends_with("tls");
    if (tls && (options.tls_cert.empty() || options.tls_key.empty())) {
      return api::Fail(api::ErrorCode::kInvalidArgument,
                       fmt::format("the inherited socket {} requires --tls-cert and --tls-key", address));
    }
    plan.inherited.push_back({socket.fd, tls ? Security::kTls : Security::kPlain, address});
  }
  if (plan.inherited.empty() && host_socket.empty()) {
    auto plain = PlanOne(plan, options.host, options);
    if (!plain) return std::unexpected(plain.error());
    plan.plain = *plain;
  }
  auto tls = PlanOne(plan, options.tls_host, options);
  if (!tls) return std::unexpected(tls.error());
  plan.tls = *tls;
  return plan;
}

api::Result<std::vector<std::string>> Listen(HttpServer& server, const ListenPlan& plan) {
  std::vector<std::string> addresses;
  for (const ListenPlan::Inherited& socket : plan.inherited) {
    if (const auto adopted = server.Adopt(socket.fd, socket.security); !adopted) {
      return std::unexpected(adopted.error());
    }
    addresses.push_back(socket.address);
  }
  for (const auto& [endpoint, security] :
       {std::pair{plan.plain, Security::kPlain}, std::pair{plan.tls, Security::kTls}}) {
    if (!endpoint) continue;
    const auto bound = server.Listen(*endpoint, security);
    if (!bound) return std::unexpected(bound.error());
    addresses.push_back((security == Security::kTls ? "tls:" : "") + Describe(*bound));
  }
  if (!plan.unix_socket.empty()) {
    if (const auto bound = server.ListenUnix(plan.unix_socket); !bound) return std::unexpected(bound.error());
    addresses.push_back("unix:" + plan.unix_socket.string());
  }
  return addresses;
}

}  // namespace quire::server
