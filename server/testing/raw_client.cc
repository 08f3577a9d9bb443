#include "server/testing/raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>

#include "api/base/ascii.h"

namespace quire::server::testing {

RawClient::RawClient(uint16_t port, const char* source) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  EXPECT_EQ(::inet_pton(AF_INET, source, &address.sin_addr), 1);
  EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const timeval patience{60, 0};  // a server that never answers fails the test instead of hanging it
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

RawClient::~RawClient() { Close(); }

bool RawClient::TrySend(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::Send(std::string_view bytes) {
  EXPECT_TRUE(TrySend(bytes)) << "the server does not take the bytes";
}

bool RawClient::HasInput() const {
  char byte;
  return !buffer_.empty() || ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

bool RawClient::Fill() {
  char chunk[16384];
  const ssize_t got = ::recv(fd_, chunk, sizeof(chunk), 0);
  if (got < 0 && errno != ECONNRESET && errno != EPIPE) ADD_FAILURE() << "no answer in time";
  if (got <= 0) return false;
  buffer_.append(chunk, static_cast<size_t>(got));
  return true;
}

std::string RawClient::Line() {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return {};
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

std::string RawClient::ReadSome(size_t bytes) {
  while (buffer_.size() < bytes && Fill()) {
  }
  const size_t taken = std::min(bytes, buffer_.size());
  std::string some = buffer_.substr(0, taken);
  buffer_.erase(0, taken);
  return some;
}

RawResponse RawClient::Read(bool head) {
  RawResponse response;
  const std::string status = Line();
  if (status.size() < 12) return response;
  response.version = status.substr(0, 8);
  response.status = std::atoi(status.c_str() + 9);
  for (std::string line = Line(); !line.empty(); line = Line()) {
    const size_t colon = line.find(": ");
    response.headers[api::AsciiLower(line.substr(0, colon))] = line.substr(colon + 2);
  }
  response.chunked = response.headers["transfer-encoding"] == "chunked";
  if (head || response.status == 204 || response.status / 100 == 1) {
    response.whole = true;
  } else if (response.chunked) {
    for (;;) {
      const std::string size_line = Line();
      if (size_line.empty()) return response;
      const size_t size = std::strtoul(size_line.c_str(), nullptr, 16);
      const std::string piece = ReadSome(size + 2);
      if (piece.size() < size + 2) return response;
      if (size == 0) break;
      response.body += piece.substr(0, size);
    }
    response.whole = true;
  } else if (response.headers.contains("content-length")) {
    const size_t size = std::strtoul(response.headers["content-length"].c_str(), nullptr, 10);
    response.body = ReadSome(size);
    response.whole = response.body.size() == size;
  } else {
    response.body = ReadToEnd();
    response.whole = true;
  }
  return response;
}

std::string RawClient::ReadToEnd() {
  while (Fill()) {
  }
  return std::exchange(buffer_, {});
}

bool RawClient::AtEnd() { return buffer_.empty() && !Fill() && buffer_.empty(); }

void RawClient::FinishSending() { ::shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawClient::Reset() {
  const linger hard{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  Close();
}

}  // namespace quire::server::testing
