// Binds, takes over and accepts: the sockets on which connections come. I/O thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/base/error.h"
#include "server/http/awaitable.h"
#include "server/http/connection.h"

namespace quire::server {

// "127.0.0.1:11434", "[::1]:11434"
std::string Describe(const boost::asio::ip::tcp::endpoint& endpoint);
// Where an inherited socket listens; nothing for a Unix socket. Errors: it is neither that nor a TCP socket.
api::Result<std::optional<boost::asio::ip::tcp::endpoint>> ListeningAddress(int listening_fd);

enum class Security : uint8_t { kPlain, kTls };

struct ListenerInfo {
  std::optional<boost::asio::ip::address> bound;  // nothing: a Unix socket
  Security security = Security::kPlain;
};

class Listeners {
 public:
  struct Owner {
    // Takes a new connection, or refuses it. False: it took the last place, or that of another one.
    std::function<bool(Connection::Socket socket, const ListenerInfo& listener)> admit;
    // Descriptors or memory are lacking: closes a connection. False: it cannot.
    std::function<bool()> close_one;
  };
  // The owner outlives the executor's work.
  Listeners(boost::asio::any_io_executor executor, Owner owner)
      : executor_(std::move(executor)), owner_(std::move(owner)) {}

  // As HttpServer's.
  api::Result<boost::asio::ip::tcp::endpoint> Listen(const boost::asio::ip::tcp::endpoint& endpoint,
                                                     Security security);
  api::Result<void> ListenUnix(const std::filesystem::path& path);
  api::Result<void> Adopt(int listening_fd, Security security);
  void Close();

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  void Start(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener);
  Awaitable<void> Accept(std::shared_ptr<Acceptor> acceptor, ListenerInfo listener);
  boost::system::error_code AdmitWaiting(Connection::Socket socket, Acceptor& acceptor,
                                         const ListenerInfo& listener);
  bool AcceptsAgain(const boost::system::error_code& ec);
  void WarnOfFailedAccept(const std::string& reason);

  boost::asio::any_io_executor executor_;
  const Owner owner_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  std::vector<std::filesystem::path> unix_paths_;            // of sockets made here
  std::chrono::steady_clock::time_point next_warning_ = {};  // of failed accepts
};

}  // namespace quire::server
