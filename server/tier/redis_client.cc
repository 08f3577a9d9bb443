#include "server/tier/redis_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "api/base/parse_integer.h"

namespace quire::server {
namespace {

constexpr size_t kLineBytesMax = 4096;
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr int kDepthMax = 4;

std::string ErrnoText(int error) { return std::generic_category().message(error); }

bool DecodePart(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    if (i + 2 >= text.size() ||
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr != text.data() + i + 3) {
      return false;
    }
    out += static_cast<char>(value);
    i += 2;
  }
  return true;
}

std::unexpected<api::Error> BadUrl(const char* why) {
  return api::Fail(api::ErrorCode::kInvalidArgument,
                   fmt::format("must be redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss://... or "
                               "unix:///PATH: {}",
                               why));
}

bool ParseCredentials(std::string_view text, RedisAddress& address) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return DecodePart(text, address.password);
  return DecodePart(text.substr(0, colon), address.user) &&
         DecodePart(text.substr(colon + 1), address.password);
}

bool ParseHost(std::string_view text, RedisAddress& address) {
  const bool literal = text.starts_with('[');
  const size_t end = literal ? text.find(']') : text.find(':');
  if (literal && end == std::string_view::npos) return false;
  address.host = literal ? text.substr(1, end - 1) : text.substr(0, end);
  std::string_view port = end == std::string_view::npos ? "" : text.substr(end + (literal ? 1 : 0));
  if (!port.empty()) {
    if (!port.starts_with(':')) return false;
    const auto number = api::ParseInteger<uint16_t>(port.substr(1));
    if (!number || *number == 0) return false;
    address.port = *number;
  }
  return !address.host.empty();
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

}  // namespace

api::Result<RedisAddress> ParseRedisUrl(std::string_view url) {
  RedisAddress address;
  if (url.starts_with("unix://")) {
    address.unix_socket = url.substr(7);
    if (!address.unix_socket.is_absolute() ||
        address.unix_socket.native().size() >= sizeof(sockaddr_un::sun_path))
      return BadUrl("the path must be absolute, and short");
    return address;
  }
  address.tls = url.starts_with("rediss://");
  if (!address.tls && !url.starts_with("redis://")) return BadUrl("another scheme");
  url.remove_prefix(address.tls ? 9 : 8);
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) {
    if (!ParseCredentials(url.substr(0, at), address)) return BadUrl("user and password");
    url.remove_prefix(at + 1);
  }
  if (const size_t slash = url.find('/'); slash != std::string_view::npos) {
    const auto database = api::ParseInteger<int32_t>(url.substr(slash + 1));
    if (slash + 1 < url.size() && (!database || *database < 0)) return BadUrl("the database");
    address.database = database.value_or(0);
    url = url.substr(0, slash);
  }
  if (!ParseHost(url, address)) return BadUrl("host and port");
  return address;
}

struct RedisClient::Tls {
  ~Tls() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
};

RedisClient::RedisClient(RedisAddress address) : address_(std::move(address)) {}
RedisClient::~RedisClient() = default;

void RedisClient::Close() {
  tls_.reset();
  socket_.Reset();
  input_.clear();
  read_ = 0;
}

bool RedisClient::closed_by_peer() const {
  pollfd polled{socket_.get(), POLLRDHUP, 0};
  return !connected() || ::poll(&polled, 1, 0) != 0;
}

std::unexpected<api::Error> RedisClient::Fail(std::string what) {
  Close();
  return api::Fail(api::ErrorCode::kUnavailable, std::move(what));
}

bool RedisClient::Wait(short events, Time deadline) const {
  constexpr int64_t kLookForAbortMs = 100;
  while (!aborted_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd polled{socket_.get(), events, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::min<int64_t>(left.count(), kLookForAbortMs)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
  return false;
}

api::Result<void> RedisClient::OpenSocket(Time deadline) {
  const auto connect = [&](int family, const sockaddr* address, socklen_t size) -> api::Result<void> {
    socket_ = api::FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_.valid()) return Fail("socket: " + ErrnoText(errno));
    if (::connect(socket_.get(), address, size) == 0) return {};
    if (errno != EINPROGRESS && errno != EAGAIN) return Fail("cannot connect: " + ErrnoText(errno));
    int error = 0;
    socklen_t length = sizeof(error);
    if (!Wait(POLLOUT, deadline)) return Fail("cannot connect in time");
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Fail("cannot connect: " + ErrnoText(error));
    return {};
  };
  if (!address_.unix_socket.empty()) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    address_.unix_socket.native().copy(local.sun_path, sizeof(local.sun_path) - 1);
    return connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&local), sizeof(local));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, FreeAddresses> list(found);
  if (failed != 0) return Fail(fmt::format("{}: {}", address_.host, ::gai_strerror(failed)));
  api::Result<void> result = api::Fail(api::ErrorCode::kUnavailable, "no address");
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    result = connect(each->ai_family, each->ai_addr, each->ai_addrlen);
    if (!result) continue;
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    break;
  }
  return result;
}

api::Result<void> RedisClient::StartTls(Time deadline) {
  tls_ = std::make_unique<Tls>();
  tls_->context = SSL_CTX_new(TLS_client_method());
  if (tls_->context == nullptr) return Fail("TLS: no context");
  SSL_CTX_set_min_proto_version(tls_->context, TLS1_2_VERSION);
  SSL_CTX_set_verify(tls_->context, SSL_VERIFY_PEER, nullptr);
  const bool trusted = address_.ca_file.empty() ? SSL_CTX_set_default_verify_paths(tls_->context) == 1
                                                : SSL_CTX_load_verify_locations(
                                                      tls_->context, address_.ca_file.c_str(), nullptr) == 1;
  if (!trusted) return Fail("TLS: cannot read the certificates to trust");
  tls_->ssl = SSL_new(tls_->context);
  if (tls_->ssl == nullptr || SSL_set_fd(tls_->ssl, socket_.get()) != 1) return Fail("TLS: no connection");
  X509_VERIFY_PARAM* verify = SSL_get0_param(tls_->ssl);
  // A name, or an address.
  if (X509_VERIFY_PARAM_set1_ip_asc(verify, address_.host.c_str()) != 1) {
    ERR_clear_error();
    SSL_set1_host(tls_->ssl, address_.host.c_str());
    SSL_set_tlsext_host_name(tls_->ssl, address_.host.c_str());
  }
  while (true) {
    ERR_clear_error();
    const int done = SSL_connect(tls_->ssl);
    if (done == 1) return {};
    const int why = SSL_get_error(tls_->ssl, done);
    if (why == SSL_ERROR_WANT_READ && Wait(POLLIN, deadline)) continue;
    if (why == SSL_ERROR_WANT_WRITE && Wait(POLLOUT, deadline)) continue;
    const int64_t verified = SSL_get_verify_result(tls_->ssl);
    return Fail(verified == X509_V_OK
                    ? std::string("TLS: the handshake failed")
                    : fmt::format("TLS: {}", X509_verify_cert_error_string(static_cast<long>(verified))));
  }
}

api::Result<void> RedisClient::Introduce(Time deadline) {
  std::vector<Command> commands;
  if (!address_.password.empty()) {
    Command auth = {"AUTH"};
    if (!address_.user.empty()) auth.push_back(address_.user);
    auth.push_back(address_.password);
    commands.push_back(std::move(auth));
  }
  const std::string database = std::to_string(address_.database);
  if (address_.database != 0) commands.push_back({"SELECT", database});
  commands.push_back({"PING"});
  const auto replies = Query(commands, deadline);
  if (!replies) return std::unexpected(replies.error());
  for (const RedisReply& reply : *replies) {
    if (reply.kind == RedisReply::Kind::kError) return Fail("refused: " + reply.text.substr(0, 120));
  }
  return {};
}

api::Result<void> RedisClient::Connect(Time deadline) {
  Close();
  if (auto opened = OpenSocket(deadline); !opened) return opened;
  if (address_.tls) {
    if (auto started = StartTls(deadline); !started) return started;
  }
  return Introduce(deadline);
}

int64_t RedisClient::Send(std::string_view bytes, Time deadline) {
  while (true) {
    if (!tls_) {
      const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n >= 0) return n;
      if (errno == EINTR) continue;
      if (errno != EAGAIN || !Wait(POLLOUT, deadline)) return -1;
      continue;
    }
    ERR_clear_error();
    const int n =
        SSL_write(tls_->ssl, bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)));
    if (n > 0) return n;
    const int why = SSL_get_error(tls_->ssl, n);
    const bool again = (why == SSL_ERROR_WANT_WRITE && Wait(POLLOUT, deadline)) ||
                       (why == SSL_ERROR_WANT_READ && Wait(POLLIN, deadline));
    if (!again) return -1;
  }
}

int64_t RedisClient::Receive(char* out, size_t bytes, Time deadline) {
  // Also of a server that sends without a pause.
  while (std::chrono::steady_clock::now() < deadline && !aborted_) {
    if (!tls_) {
      const ssize_t n = ::recv(socket_.get(), out, bytes, 0);
      if (n >= 0) return n;
      if (errno == EINTR) continue;
      if (errno != EAGAIN || !Wait(POLLIN, deadline)) return -1;
      continue;
    }
    ERR_clear_error();
    const int n = SSL_read(tls_->ssl, out, static_cast<int>(std::min<size_t>(bytes, 1 << 20)));
    if (n > 0) return n;
    const int why = SSL_get_error(tls_->ssl, n);
    if (why == SSL_ERROR_ZERO_RETURN) return 0;
    const bool again = (why == SSL_ERROR_WANT_READ && Wait(POLLIN, deadline)) ||
                       (why == SSL_ERROR_WANT_WRITE && Wait(POLLOUT, deadline));
    if (!again) return -1;
  }
  return -1;
}

api::Result<std::string> RedisClient::ReadLine(Time deadline) {
  while (true) {
    const size_t end = input_.find("\r\n", read_);
    if (end != std::string::npos) {
      std::string line = input_.substr(read_, end - read_);
      read_ = end + 2;
      return line;
    }
    if (input_.size() - read_ > kLineBytesMax) return Fail("a reply without an end");
    input_.erase(0, std::exchange(read_, 0));
    std::array<char, kReadBytes> bytes;
    const int64_t n = Receive(bytes.data(), bytes.size(), deadline);
    if (n <= 0) return Fail(n == 0 ? "the connection was closed" : "no reply in time");
    input_.append(bytes.data(), static_cast<size_t>(n));
  }
}

// A text of this length and the end of its line. Memory for all of it is taken once a quarter has come.
api::Result<std::string> RedisClient::ReadText(size_t bytes, Time deadline) {
  std::string text = input_.substr(read_, bytes + 2);
  read_ += text.size();
  while (text.size() < bytes + 2) {
    const size_t have = text.size();
    if (have >= bytes / 4) text.reserve(bytes + 2);
    text.resize(std::min(bytes + 2, have + kReadBytes));
    const int64_t n = Receive(text.data() + have, text.size() - have, deadline);
    if (n <= 0) return Fail(n == 0 ? "the connection was closed" : "no reply in time");
    text.resize(have + static_cast<size_t>(n));
  }
  if (!text.ends_with("\r\n")) return Fail("not the Redis protocol");
  text.resize(bytes);
  return text;
}

api::Result<RedisReply> RedisClient::ReadReply(Time deadline, int depth) {
  if (!ReserveRoom(sizeof(RedisReply))) return Fail("a reply that is too long");
  auto line = ReadLine(deadline);
  if (!line) return std::unexpected(line.error());
  RedisReply reply;
  const char type = line->empty() ? '\0' : line->front();
  const std::string_view rest = std::string_view(*line).substr(type == '\0' ? 0 : 1);
  if (type == '+' || type == '-') {
    reply.kind = type == '+' ? RedisReply::Kind::kText : RedisReply::Kind::kError;
    reply.text = rest;
    return reply;
  }
  const auto number = api::ParseInteger<int64_t>(rest);
  if (!number || (type != ':' && type != '$' && type != '*')) return Fail("not the Redis protocol");
  reply.integer = *number;
  if (type == ':') {
    reply.kind = RedisReply::Kind::kInteger;
    return reply;
  }
  if (*number == -1) return reply;
  const auto size = static_cast<uint64_t>(*number);
  if (type == '$') {
    if (!ReserveRoom(size)) return Fail("a reply that is too long");
    auto text = ReadText(size, deadline);
    if (!text) return std::unexpected(text.error());
    reply.kind = RedisReply::Kind::kText;
    reply.text = *std::move(text);
    return reply;
  }
  if (size > kItemsMax || depth >= kDepthMax) return Fail("a reply that is too long");
  reply.kind = RedisReply::Kind::kArray;
  reply.items.reserve(std::min<uint64_t>(size, 64));
  for (uint64_t i = 0; i < size; ++i) {
    auto item = ReadReply(deadline, depth + 1);
    if (!item) return std::unexpected(item.error());
    reply.items.push_back(*std::move(item));
  }
  return reply;
}

bool RedisClient::ReserveRoom(size_t bytes) {
  if (bytes > room_) return false;
  room_ -= bytes;
  return true;
}

api::Result<std::vector<RedisReply>> RedisClient::Query(std::span<const Command> commands, Time deadline,
                                                        size_t bytes_max) {
  if (!connected()) return Fail("not connected");
  room_ = bytes_max + commands.size() * (sizeof(RedisReply) + kLineBytesMax);
  std::string out;
  for (const Command& command : commands) {
    out += fmt::format("*{}\r\n", command.size());
    for (const std::string_view word : command) {
      out += fmt::format("${}\r\n", word.size());
      out.append(word).append("\r\n");
    }
  }
  for (size_t at = 0; at < out.size();) {
    const int64_t n = Send(std::string_view(out).substr(at), deadline);
    if (n <= 0) return Fail("cannot send in time");
    at += static_cast<size_t>(n);
  }
  std::vector<RedisReply> replies;
  replies.reserve(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    auto reply = ReadReply(deadline, 0);
    if (!reply) return std::unexpected(reply.error());
    replies.push_back(*std::move(reply));
  }
  return replies;
}

}  // namespace quire::server
