// A connection to Redis or Valkey: RESP2 over TCP, TLS or a Unix socket. Every call has a deadline; after a
// failure the connection is closed. One thread at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/base/error.h"
#include "api/base/file_descriptor.h"

namespace quire::server {

struct RedisAddress {
  std::string host = {};
  uint16_t port = 6379;
  std::filesystem::path unix_socket = {};  // instead of host and port, unless empty
  bool tls = false;
  std::filesystem::path ca_file = {};  // certificates that sign the server's; empty: the system's
  std::string user = {};
  std::string password = {};
  int32_t database = 0;
};
// "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]", the same with rediss:// for TLS, or "unix:///PATH"; user
// and password are percent-encoded. Errors name no password.
api::Result<RedisAddress> ParseRedisUrl(std::string_view url);

struct RedisReply {
  enum class Kind : uint8_t { kNil, kInteger, kText, kError, kArray } kind = Kind::kNil;
  int64_t integer = 0;
  std::string text = {};  // also of an error
  std::vector<RedisReply> items = {};
};

class RedisClient {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr size_t kValueBytesMax = size_t{256} << 20;  // of a segment
  static constexpr size_t kReplyBytesMax = size_t{8} << 20;    // of all other replies to a query
  static constexpr size_t kItemsMax = 1 << 16;

  explicit RedisClient(RedisAddress address);
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  bool connected() const { return socket_.valid(); }
  // The server has closed the connection, or there is none. Does not wait.
  bool closed_by_peer() const;
  // Connects, verifies the certificate, authenticates. kUnavailable says what failed.
  api::Result<void> Connect(Time deadline);
  void Close();
  // Any thread: what waits fails soon, and all that follows.
  void Abort() { aborted_ = true; }

  using Command = std::vector<std::string_view>;
  // Sends all commands and reads a reply to each; Redis's own errors are replies. What they take grows with
  // the bytes that have come, not with the sizes that they state. kUnavailable: not before the deadline, or
  // more than `bytes_max`; the connection is closed.
  api::Result<std::vector<RedisReply>> Query(std::span<const Command> commands, Time deadline,
                                             size_t bytes_max = kReplyBytesMax);

 private:
  struct Tls;

  api::Result<void> OpenSocket(Time deadline);
  api::Result<void> StartTls(Time deadline);
  api::Result<void> Introduce(Time deadline);
  // Bytes moved; 0: the other end closed. Below 0: an error, or the deadline.
  int64_t Send(std::string_view bytes, Time deadline);
  int64_t Receive(char* out, size_t bytes, Time deadline);
  bool Wait(short events, Time deadline) const;
  api::Result<std::string> ReadLine(Time deadline);
  api::Result<std::string> ReadText(size_t bytes, Time deadline);
  api::Result<RedisReply> ReadReply(Time deadline, int depth);
  bool ReserveRoom(size_t bytes);
  std::unexpected<api::Error> Fail(std::string what);

  const RedisAddress address_;
  std::atomic<bool> aborted_ = false;
  api::FileDescriptor socket_;
  std::unique_ptr<Tls> tls_;
  std::string input_;
  size_t read_ = 0;  // of input_
  size_t room_ = 0;  // bytes that the replies to a query may still take
};

}  // namespace quire::server
