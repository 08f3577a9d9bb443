// Where the daemon listens, and whether it may: beyond this machine only with keys, or when the operator says
// so. An address that means every interface includes loopback: without either it means loopback only, so that
// a setup copied from another server serves its own machine. Any other address beyond this machine is an
// error.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/http/server.h"
#include "server/options.h"

namespace quire::server {

struct ListenPlan {
  struct Inherited {
    int fd = -1;
    Security security = Security::kPlain;
    std::string address;  // for the log
  };
  std::vector<Inherited> inherited;  // from the service manager; then there is no `plain`
  std::optional<boost::asio::ip::tcp::endpoint> plain, tls;
  std::filesystem::path unix_socket;  // empty: none
  bool remote = false;                // one of them can be reached from other machines
  std::string warning;                // for the log: an address that was restricted, and what to do; or empty
};

// Resolves names, binds nothing. An inherited socket whose name (FileDescriptorName=) ends in "tls" speaks
// TLS. Errors name the address: it is one that is not loopback, there are neither keys nor allow_remote, or
// it is unknown.
api::Result<ListenPlan> PlanListen(const Options& options);

// Listens everywhere; gives the addresses, for the log.
api::Result<std::vector<std::string>> Listen(HttpServer& server, const ListenPlan& plan);

}  // namespace quire::server
