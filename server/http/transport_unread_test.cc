// Clients that ask and do not read, or read slowly.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

using testing::RawClient;
using testing::TestServer;

constexpr std::string_view kShortRequest = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr size_t kLargeBytes = size_t{1} << 20;

std::string WholePost(std::string_view path, std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", path, body.size(),
                     body);
}

sockaddr_in AddressOf(const char* host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

// Its kernel takes some KiB for it.
class SlowReader {
 public:
  explicit SlowReader(uint16_t port, const char* from = "127.0.0.1") {
    const int receive_buffer = 4096;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    const timeval patience{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const sockaddr_in own = AddressOf(from, 0);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
    const sockaddr_in peer = AddressOf("127.0.0.1", port);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)), 0);
  }
  ~SlowReader() { ::close(fd_); }
  SlowReader(const SlowReader&) = delete;
  SlowReader& operator=(const SlowReader&) = delete;

  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // At most as many bytes of what comes next. False: the connection has ended.
  bool Read(size_t bytes) {
    std::string piece(bytes, '\0');
    const ssize_t got = ::recv(fd_, piece.data(), piece.size(), 0);
    if (got <= 0) return false;
    received_.append(piece, 0, static_cast<size_t>(got));
    return true;
  }
  const std::string& ReadToEnd() {
    while (Read(65536)) {
    }
    return received_;
  }
  const std::string& received() const { return received_; }

 private:
  int fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string received_;
};

struct Unread {
  const char* what;
  std::string requests;
  size_t answer_bytes;   // at least
  size_t read_each_try;  // of ten a second
};

std::vector<Unread> UnreadCases() {
  std::string pipelined;
  for (int i = 0; i < 2000; ++i) pipelined += kShortRequest;
  return {{"one answer", WholePost("/echo", std::string(kLargeBytes, 'x')), kLargeBytes, 0},
          {"many answers", pipelined, 2000 * 100, 0},
          {"one answer, some bytes of it now and then", WholePost("/echo", std::string(kLargeBytes, 'x')),
           kLargeBytes, 256}};
}

// A client that takes little of its answer gives its place up. One that reads a stream slowly does not, nor
// one that waits.
TEST(TransportUnread, AnAnswerThatNobodyReadsGivesItsPlaceUp) {
  for (const Unread& unread : UnreadCases()) {
    TransportLimits limits;
    limits.connections = 3;
    TestServer server(limits);
    std::string lines;
    for (int i = 0; i < 64; ++i) lines += std::string(16383, 'y') + "\n";
    SlowReader stream(server.port());
    stream.Send(WholePost("/stream", lines));
    EXPECT_TRUE(stream.Read(1));
    RawClient waiting(server.port());
    waiting.Send(WholePost("/hold", ""));
    server.WaitEntered();
    SlowReader idler(server.port());
    idler.Send(unread.requests);
    EXPECT_TRUE(idler.Read(1));
    int status = 503;
    for (int tries = 0; status != 200 && tries < 200; ++tries) {
      stream.Read(4096);
      if (unread.read_each_try > 0) idler.Read(unread.read_each_try);
      RawClient late(server.port());
      late.Send(kShortRequest);
      status = late.Read().status;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(status, 200) << unread.what;
    EXPECT_LT(idler.ReadToEnd().size(), unread.answer_bytes) << unread.what;
    while (!stream.received().ends_with("\r\n0\r\n\r\n") && stream.Read(65536)) {
    }
    EXPECT_TRUE(stream.received().ends_with("\r\n0\r\n\r\n")) << unread.what;
    server.Release();
    EXPECT_EQ(waiting.Read().body, "released");
  }
}

// As a body, an answer that is sent whole has a minimum rate.
TEST(TransportUnread, AnAnswerThatIsTakenTooSlowlyEnds) {
  TransportLimits limits;
  limits.write_timeout = std::chrono::milliseconds(200);
  limits.body_bytes_per_second_min = uint64_t{1} << 30;
  TestServer server(limits);
  SlowReader client(server.port());
  client.Send(WholePost("/echo", std::string(kLargeBytes, 'x')));
  while (client.Read(4096)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(client.received().size(), kLargeBytes);
}

// A client that comes again and again replaces its own connections, not those that others keep for later.
TEST(TransportUnread, AnAddressReplacesItsOwnConnections) {
  TransportLimits limits;
  limits.connections = 6;
  TestServer server(limits);
  RawClient kept(server.port());
  kept.Send(kShortRequest);
  EXPECT_EQ(kept.Read().status, 200);
  std::this_thread::sleep_for(kFreshTime);
  std::vector<std::unique_ptr<SlowReader>> crowd;
  for (int i = 0; i < 30; ++i) {
    crowd.push_back(std::make_unique<SlowReader>(server.port(), "127.0.0.2"));
    server.OnIoThread([] {});
  }
  RawClient late(server.port());
  late.Send(kShortRequest);
  EXPECT_EQ(late.Read().status, 200);
  kept.Send(kShortRequest);
  EXPECT_EQ(kept.Read().status, 200);
}

}  // namespace
}  // namespace quire::server
