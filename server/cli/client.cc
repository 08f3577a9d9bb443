#include "server/cli/client.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace quire::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;

// One exchange. Lives on the stack of Exchange(), which runs its io_context to the end.
struct Call {
  Endpoint endpoint;
  http::verb verb = http::verb::get;
  std::string path;
  std::string body;
  std::filesystem::path file;  // goes as the body instead, unless empty
  std::function<void(int64_t)> on_sent;
  // Of a 200 reply; an error ends the exchange.
  std::function<api::Result<void>(std::string_view)> on_bytes;
  std::function<void()> on_tick = {};  // ten times a second, unless empty

  asio::io_context io;
  tcp::socket socket{io};
  bool interrupted = false;
  bool connected = false;
  unsigned status = 0;
  std::string error_body;
  std::optional<api::Error> refused;  // by on_bytes
};

asio::awaitable<void> SendFile(Call& call, http::request<http::string_body> request) {
  std::ifstream file(call.file, std::ios::binary);
  request.content_length(std::filesystem::file_size(call.file));
  request.set(http::field::content_type, "application/octet-stream");
  http::request_serializer<http::string_body> serializer(request);
  co_await http::async_write_header(call.socket, serializer, asio::use_awaitable);
  std::vector<char> bytes(size_t{1} << 20);
  int64_t sent = 0;
  while (file.read(bytes.data(), static_cast<std::streamsize>(bytes.size())), file.gcount() > 0) {
    const auto count = static_cast<size_t>(file.gcount());
    co_await asio::async_write(call.socket, asio::buffer(bytes.data(), count), asio::use_awaitable);
    sent += static_cast<int64_t>(count);
    call.on_sent(sent);
  }
}

asio::awaitable<void> Converse(Call& call) {
  tcp::resolver resolver(call.io);
  const auto addresses = co_await resolver.async_resolve(
      call.endpoint.host, std::to_string(call.endpoint.port), asio::use_awaitable);
  co_await asio::async_connect(call.socket, addresses, asio::use_awaitable);
  call.connected = true;

  http::request<http::string_body> request(call.verb, call.path, 11, std::move(call.body));
  const std::string& host = call.endpoint.host;
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";  // IPv6
  request.set(http::field::host, fmt::format("{}:{}", name, call.endpoint.port));
  request.set(http::field::user_agent, "quire/" QUIRE_VERSION);
  if (call.verb == http::verb::post) request.set(http::field::content_type, "application/json");
  if (const std::string_view key = ApiKey(); !key.empty()) {
    request.set(http::field::authorization, fmt::format("Bearer {}", key));
  }
  request.keep_alive(false);
  if (call.file.empty()) {
    request.prepare_payload();
    co_await http::async_write(call.socket, request, asio::use_awaitable);
  } else {
    co_await SendFile(call, std::move(request));
  }

  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  parser.skip(call.verb == http::verb::head);
  co_await http::async_read_header(call.socket, buffer, parser, asio::use_awaitable);
  call.status = parser.get().result_int();
  std::array<char, 16384> bytes;
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    boost::system::error_code error;
    co_await http::async_read_some(call.socket, buffer, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
    if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
    const std::string_view piece(bytes.data(), bytes.size() - parser.get().body().size);
    if (call.status / 100 == 2) {
      if (auto taken = call.on_bytes(piece); !taken) {
        call.refused = std::move(taken.error());
        co_return;
      }
    } else {
      call.error_body.append(piece);
    }
  }
}

// The server's {"error": "..."} or {"error": {"message": "..."}} or, from something that is not ours, the status.
api::Error ErrorOf(const Call& call) {
  const api::ErrorCode code = api::CodeOf(static_cast<int>(call.status));
  const auto json = nlohmann::json::parse(call.error_body, nullptr, false);
  const nlohmann::json none;
  const auto member = [&none](const nlohmann::json& object, const char* name) -> const nlohmann::json& {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return found == object.end() ? none : *found;
  };
  const nlohmann::json& error = member(json, "error");
  const nlohmann::json& message = error.is_object() ? member(error, "message") : error;
  if (message.is_string()) return {code, message.get<std::string>()};
  return {code, fmt::format("{} returned HTTP {}", call.path, call.status)};
}

// SIGINT as something to wait for. It is blocked while this lives: one that comes at any moment is seen, none
// ends the process.
class Interrupts {
 public:
  explicit Interrupts(asio::io_context& io) : descriptor_(io) {
    sigset_t interrupt;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
    descriptor_.assign(::signalfd(-1, &interrupt, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Interrupts() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  void OnNext(std::function<void()> action) {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read,
                           [this, action = std::move(action)](const boost::system::error_code& error) {
                             signalfd_siginfo taken;
                             const bool came = !error && ::read(descriptor_.native_handle(), &taken,
                                                                sizeof(taken)) == sizeof(taken);
                             if (came) action();
                           });
  }
  void Cancel() { descriptor_.cancel(); }

 private:
  asio::posix::stream_descriptor descriptor_;
  sigset_t before_{};
};

// Calls back ten times a second.
class Ticker {
 public:
  Ticker(asio::io_context& io, const std::function<void()>& on_tick) : timer_(io), on_tick_(on_tick) {
    Wait();
  }
  void Cancel() { timer_.cancel(); }

 private:
  void Wait() {
    timer_.expires_after(std::chrono::milliseconds(100));
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      on_tick_();
      Wait();
    });
  }

  asio::steady_timer timer_;
  const std::function<void()>& on_tick_;
};

api::Result<void> Exchange(Call& call, bool interruptible) {
  std::exception_ptr failure;
  std::optional<Interrupts> interrupts;
  std::optional<Ticker> ticker;
  if (call.on_tick) ticker.emplace(call.io, call.on_tick);
  if (interruptible) {
    interrupts.emplace(call.io);
    interrupts->OnNext([&call] {
      call.interrupted = true;
      call.io.stop();  // whatever the call waits for; it is destroyed with its io_context
    });
  }
  asio::co_spawn(call.io, Converse(call), [&](std::exception_ptr error) {
    failure = std::move(error);
    if (interrupts) interrupts->Cancel();
    if (ticker) ticker->Cancel();
  });
  call.io.run();
  if (call.interrupted) return api::Fail(api::ErrorCode::kCancelled, "interrupted");
  if (call.refused) return std::unexpected(*std::move(call.refused));
  if (failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const boost::system::system_error& error) {
      const std::string why = error.code().message();
      if (!call.connected) {
        return api::Fail(api::ErrorCode::kUnavailable,
                         fmt::format("could not connect to {}:{}, is it running? ({})", call.endpoint.host,
                                     call.endpoint.port, why));
      }
      return api::Fail(api::ErrorCode::kInternal, fmt::format("connection lost: {}", why));
    } catch (const std::exception& error) {
      return api::Fail(api::ErrorCode::kInternal, fmt::format("connection lost: {}", error.what()));
    }
  }
  if (call.status / 100 != 2) return std::unexpected(ErrorOf(call));
  return {};
}

// The whole body of the reply.
api::Result<std::string> ExchangeWhole(Call& call, bool interruptible = false) {
  std::string body;
  call.on_bytes = [&body](std::string_view bytes) {
    body.append(bytes);
    return api::Result<void>();
  };
  if (auto done = Exchange(call, interruptible); !done) return std::unexpected(done.error());
  return body;
}

}  // namespace

std::string_view ApiKey() {
  for (const char* variable : {"QUIRE_API_KEY", "OLLAMA_API_KEY"}) {
    if (const char* key = std::getenv(variable); key != nullptr && *key != '\0') return key;
  }
  return {};
}

std::string Client::Url() const {
  const bool literal = endpoint_.host.find(':') != std::string::npos;  // of IPv6
  return fmt::format("http://{}{}{}:{}", literal ? "[" : "", endpoint_.host, literal ? "]" : "",
                     endpoint_.port);
}

std::string Dump(const nlohmann::ordered_json& body) {
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

api::Result<std::string> Client::Get(std::string_view path, bool interruptible) {
  Call call;
  call.endpoint = endpoint_;
  call.path = path;
  return ExchangeWhole(call, interruptible);
}

api::Result<std::string> Client::Post(std::string_view path, std::string body) {
  Call call;
  call.endpoint = endpoint_;
  call.verb = http::verb::post;
  call.path = path;
  call.body = std::move(body);
  return ExchangeWhole(call);
}

api::Result<std::string> Client::Delete(std::string_view path, std::string body) {
  Call call;
  call.endpoint = endpoint_;
  call.verb = http::verb::delete_;
  call.path = path;
  call.body = std::move(body);
  return ExchangeWhole(call);
}

api::Result<void> Client::Download(std::string_view path,
                                   const std::function<api::Result<void>(std::string_view)>& on_bytes) {
  Call call;
  call.endpoint = endpoint_;
  call.path = path;
  call.on_bytes = on_bytes;
  return Exchange(call, true);
}

api::Result<bool> Client::Has(std::string_view path) {
  Call call;
  call.endpoint = endpoint_;
  call.verb = http::verb::head;
  call.path = path;
  const auto reply = ExchangeWhole(call);
  if (reply) return true;
  if (reply.error().code == api::ErrorCode::kNotFound) return false;
  return std::unexpected(reply.error());
}

api::Result<std::string> Client::PostFile(std::string_view path, const std::filesystem::path& file,
                                          const std::function<void(int64_t)>& on_sent) {
  if (!std::ifstream(file, std::ios::binary)) {
    return api::Fail(api::ErrorCode::kNotFound, fmt::format("{}: cannot be read", file.string()));
  }
  Call call;
  call.endpoint = endpoint_;
  call.verb = http::verb::post;
  call.path = path;
  call.file = file;
  call.on_sent = on_sent;
  return ExchangeWhole(call, true);
}

api::Result<void> Client::PostLines(std::string_view path, std::string body, const LineHandlers& handlers) {
  Call call;
  std::string pending;
  call.endpoint = endpoint_;
  call.verb = http::verb::post;
  call.path = path;
  call.body = std::move(body);
  call.on_tick = handlers.on_tick;
  call.on_bytes = [&](std::string_view bytes) {
    pending.append(bytes);
    size_t begin = 0;
    api::Result<void> taken;
    for (size_t end; taken && (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      taken = handlers.on_line(std::string_view(pending).substr(begin, end - begin));
    }
    pending.erase(0, begin);
    return taken;
  };
  auto done = Exchange(call, true);
  if (done && !pending.empty()) done = handlers.on_line(pending);
  return done;
}

}  // namespace quire::cli
