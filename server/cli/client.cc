#include "server/cli/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "api/base/file_descriptor.h"
#include "server/cli/doctor.h"
#include "server/cli/local_store.h"
#include "server/registry/http.h"

namespace quire::cli {
namespace {

namespace registry = server::registry;

// The server's {"error": "..."} or {"error": {"message": "..."}} or, from something that is not ours, the
// status.
api::Error ErrorOf(std::string_view path, const registry::Reply& reply) {
  const api::ErrorCode code = api::CodeOf(reply.status);
  const auto json = nlohmann::json::parse(reply.body, nullptr, false);
  const nlohmann::json none;
  const auto member = [&none](const nlohmann::json& object, const char* name) -> const nlohmann::json& {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return found == object.end() ? none : *found;
  };
  const nlohmann::json& error = member(json, "error");
  const nlohmann::json& message = error.is_object() ? member(error, "message") : error;
  // Beside what any client hears: where this one has its key from.
  const std::string_view hint = reply.status != 401 ? ""
                                : ApiKey().empty()  ? ": set QUIRE_API_KEY to a key of this daemon"
                                                    : ": see the key in QUIRE_API_KEY";
  if (message.is_string()) return {code, message.get<std::string>() + std::string(hint)};
  return {code, fmt::format("{} returned HTTP {}{}", path, reply.status, hint)};
}

// SIGINT as something to wait for. It is blocked while this lives: one that comes at any moment is seen, none
// ends the process.
class Interrupts {
 public:
  Interrupts() {
    sigset_t interrupt;
    ::sigemptyset(&interrupt);
    ::sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
    descriptor_ = api::FileDescriptor(::signalfd(-1, &interrupt, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Interrupts() {
    signalfd_siginfo taken;
    while (::read(descriptor_.get(), &taken, sizeof(taken)) == sizeof(taken)) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int descriptor() const { return descriptor_.get(); }

 private:
  api::FileDescriptor descriptor_;
  sigset_t before_{};
};

}  // namespace

struct Client::Call {
  std::string_view path;
  registry::Request request = {};
  // Takes the bytes of a 200 reply; an error ends the exchange. Empty: the body is the reply's.
  std::function<api::Result<void>(std::string_view)> on_bytes = {};
  bool interruptible = false;
  registry::Reply reply = {};
};

api::Result<void> Client::Exchange(Call& call) {
  registry::Request& request = call.request;
  request.url = (endpoint_.unix_socket.empty() ? Url() : "http://localhost") + std::string(call.path);
  request.unix_socket = endpoint_.unix_socket;
  request.stalled_max = std::chrono::seconds(0);
  request.unreachable_hint = {};
  request.reply_bytes_max = std::numeric_limits<size_t>::max() / 2;
  request.headers.push_back(request.body_fd >= 0 ? "Content-Type: application/octet-stream"
                                                 : "Content-Type: application/json");
  if (const std::string_view key = ApiKey(); !key.empty())
    request.headers.push_back(fmt::format("Authorization: Bearer {}", key));
  std::optional<Interrupts> interrupts;
  if (call.interruptible) request.interrupt_fd = interrupts.emplace().descriptor();

  std::optional<api::Error> refused;  // by on_bytes
  registry::Sink sink;
  if (call.on_bytes) {
    sink = [&](const registry::Reply&, std::string_view piece) {
      auto taken = call.on_bytes(piece);
      if (!taken) refused = std::move(taken.error());
      return !refused;
    };
  }
  const registry::AddressPolicy trusted({endpoint_.unix_socket.empty() ? endpoint_.host : "localhost"});
  const std::atomic<bool> never = false;
  registry::Http http(trusted, never);
  auto reply = http.Exchange(request, sink);
  if (refused) return std::unexpected(*std::move(refused));
  if (!reply) {
    if (reply.error().code == api::ErrorCode::kCancelled)
      return api::Fail(api::ErrorCode::kCancelled, "interrupted");
    const bool absent =
        !endpoint_.unix_socket.empty() && ::access(endpoint_.unix_socket.c_str(), R_OK | W_OK) != 0;
    const std::string why = absent ? std::generic_category().message(errno) : reply.error().message;
    if (http.connected())
      return api::Fail(api::ErrorCode::kInternal, fmt::format("connection lost: {}", why));
    return api::Fail(api::ErrorCode::kUnavailable,
                     fmt::format("could not connect to {} ({}){}", Url(), why, HowToStart(endpoint_)));
  }
  call.reply = *std::move(reply);
  if (call.reply.status / 100 != 2) return std::unexpected(ErrorOf(call.path, call.reply));
  return {};
}

// The whole body of the reply.
api::Result<std::string> Client::ExchangeWhole(Call& call) {
  if (auto done = Exchange(call); !done) return std::unexpected(done.error());
  return std::move(call.reply.body);
}

std::string_view ApiKey() {
  for (const char* variable : {"QUIRE_API_KEY", "OLLAMA_API_KEY"}) {
    if (const char* key = std::getenv(variable); key != nullptr && *key != '\0') return key;
  }
  return {};
}

std::string Client::Url() const {
  if (!endpoint_.unix_socket.empty()) return "unix://" + endpoint_.unix_socket;
  const bool literal = endpoint_.host.find(':') != std::string::npos;  // of IPv6
  return fmt::format("{}://{}{}{}:{}{}", endpoint_.https ? "https" : "http", literal ? "[" : "",
                     endpoint_.host, literal ? "]" : "", endpoint_.port, endpoint_.path);
}

std::string HowToStart(const Endpoint& endpoint) {
  if (!IsLocal(endpoint)) return ": is a daemon running there?";
  return IsService() ? ": start the daemon with \"systemctl start quire\""
                     : ": start a daemon with \"quire serve\"";
}

std::string Dump(const nlohmann::ordered_json& body) {
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

api::Result<std::string> Client::Get(std::string_view path, bool interruptible) {
  Call call{.path = path, .interruptible = interruptible};
  return ExchangeWhole(call);
}

api::Result<std::string> Client::Post(std::string_view path, std::string body) {
  Call call{.path = path, .request = {.method = "POST", .url = {}, .body = std::move(body)}};
  return ExchangeWhole(call);
}

api::Result<std::string> Client::Delete(std::string_view path, std::string body) {
  Call call{.path = path, .request = {.method = "DELETE", .url = {}, .body = std::move(body)}};
  return ExchangeWhole(call);
}

api::Result<void> Client::Download(std::string_view path,
                                   const std::function<api::Result<void>(std::string_view)>& on_bytes) {
  Call call{.path = path, .on_bytes = on_bytes, .interruptible = true};
  return Exchange(call);
}

api::Result<bool> Client::Has(std::string_view path) {
  Call call{.path = path, .request = {.method = "HEAD", .url = {}}};
  const auto reply = ExchangeWhole(call);
  if (reply) return true;
  if (reply.error().code == api::ErrorCode::kNotFound) return false;
  return std::unexpected(reply.error());
}

api::Result<std::string> Client::PostFile(std::string_view path, const std::filesystem::path& file,
                                          const std::function<void(int64_t)>& on_sent) {
  const api::FileDescriptor open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::error_code unknown;
  const auto size = std::filesystem::file_size(file, unknown);
  if (!open.valid() || unknown)
    return api::Fail(api::ErrorCode::kNotFound, fmt::format("{}: cannot be read", file.string()));
  Call call{.path = path,
            .request = {.method = "POST",
                        .url = {},
                        .body_fd = open.get(),
                        .body_bytes = static_cast<int64_t>(size),
                        .on_sent = on_sent},
            .interruptible = true};
  return ExchangeWhole(call);
}

api::Result<void> Client::PostLines(std::string_view path, std::string body, const LineHandlers& handlers) {
  std::string pending;
  Call call{.path = path,
            .request = {.method = "POST", .url = {}, .body = std::move(body), .on_tick = handlers.on_tick},
            .interruptible = true};
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
  auto done = Exchange(call);
  if (done && !pending.empty()) done = handlers.on_line(pending);
  return done;
}

}  // namespace quire::cli
