// One HTTP exchange as a client, as far as it is about sockets: no redirects, no credentials of its own. With
// registries, collectors of traces and, by the command line, daemons.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "server/registry/address_policy.h"

namespace quire::server::registry {

struct Request {
  std::string method = "GET";
  std::string url;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string body = {};
  int body_fd = -1;  // a file of which `body_bytes` from `body_offset` on go as the body instead
  int64_t body_offset = 0;
  int64_t body_bytes = 0;
  std::function<void(int64_t sent)> on_sent = {};
  std::chrono::milliseconds time_max{0};     // for the whole exchange; 0: no limit but stalled_max
  std::chrono::seconds stalled_max{60};      // without a byte; 0: no limit
  size_t reply_bytes_max = size_t{4} << 20;  // that no sink takes
  std::string authorities = {};              // certificates (PEM) instead of the usual ones
  int interrupt_fd = -1;                     // readable: the exchange ends with kCancelled
  std::string unix_socket = {};              // its path, in place of the URL's host
  bool proxies = false;                      // through what the environment names (proxy.h)
  std::function<void()> on_tick = {};        // ten times a second
  // What comes before libcurl's reason if there is no connection.
  std::string_view unreachable_hint = "cannot be reached; does this machine have a network? ";
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // by lower-case name; the last of a name counts
  std::string body;                            // what no sink took

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

// Takes the body of a reply of status 200 or 206 piece by piece; false gives the exchange up.
using Sink = std::function<bool(const Reply& reply, std::string_view piece)>;

// Blocks; one thread at a time. Connections are kept and used again.
class Http {
 public:
  // Both outlive this. Once `cancelled` is true every call returns kCancelled soon. Certificates are checked
  // against the system's authorities, or the file that SSL_CERT_FILE names.
  Http(const AddressPolicy& policy, const std::atomic<bool>& cancelled);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // Errors: kForbidden (HTTP, or an address that is not public, of a host that is not trusted; the proxy
  // itself may have any address), kUnavailable (no connection, no certificate, a broken or stalled stream, no
  // end within time_max, a larger body that no sink takes), kCancelled.
  api::Result<Reply> Exchange(const Request& request, const Sink& sink = {});
  bool connected() const { return connected_; }  // the last exchange had a connection

 private:
  struct Call;
  struct Handle;
  static void SetUp(Call& call, char* why);
  static void SetMethod(Call& call);
  // The proxy of the call, and whether it may be asked.
  api::Result<void> ChooseProxy(Call& call, const Origin& origin);
  // libcurl's code of how it ended.
  int Perform(Call& call);

  const AddressPolicy& policy_;
  const std::atomic<bool>& cancelled_;
  std::unique_ptr<Handle> handle_;
  bool connected_ = false;
  std::string proxied_host_;  // the last one that a proxy may be asked for
};

}  // namespace quire::server::registry
