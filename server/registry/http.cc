#include "server/registry/http.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <expected>
#include <utility>

#include "api/base/ascii.h"
#include "server/registry/certificate_authorities.h"
#include "server/registry/proxy.h"

namespace quire::server::registry {
namespace {

constexpr size_t kHeaderBytesMax = size_t{64} << 10;
constexpr long kConnectSeconds = 30;
constexpr std::chrono::milliseconds kTick(100);

struct HeadersFreed {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};

void InitOnce() {
  static const CURLcode initialized = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(initialized);
}

std::unexpected<api::Error> PrivateAddress(const Origin& origin) {
  return api::Fail(
      api::ErrorCode::kForbidden,
      fmt::format("{}:{}: private addresses are allowed only for trusted registries (--registries)",
                  origin.host, origin.port));
}

// What is at fault besides libcurl's reason.
std::string_view HintOf(CURLcode code, std::string_view unreachable, std::string_view why) {
  if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT) return unreachable;
  const bool plain =
      code == CURLE_SSL_CONNECT_ERROR && why.find("wrong version number") != std::string_view::npos;
  return plain ? "it speaks HTTP, not HTTPS; for a registry, use --insecure: " : "";
}

}  // namespace

struct Http::Handle {
  CURL* easy = nullptr;
  CURLM* multi = nullptr;  // has the connections
};

// The state of the callbacks of one exchange.
struct Http::Call {
  const Request& request;
  const Sink& sink;
  CURL* easy;
  bool trusted = false;
  std::string proxy = {};  // its URL; empty: none
  bool address_refused = false;
  bool too_large = false;
  bool interrupted = false;
  size_t header_bytes = 0;
  int64_t sent = 0;
  Reply reply = {};

  // Libcurl is C: nothing may be thrown through it.
  static size_t OnHeader(char* bytes, size_t size, size_t count, void* call) noexcept {
    return static_cast<Call*>(call)->HandleHeader({bytes, size * count}) ? size * count : 0;
  }
  static size_t OnBody(char* bytes, size_t size, size_t count, void* call) noexcept {
    return static_cast<Call*>(call)->HandleBody({bytes, size * count}) ? size * count : 0;
  }
  static size_t OnRead(char* bytes, size_t size, size_t count, void* call) noexcept {
    return static_cast<Call*>(call)->FillBody(bytes, size * count);
  }
  static int OnSeek(void* call, curl_off_t offset, int origin) {
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    static_cast<Call*>(call)->sent = offset;
    return CURL_SEEKFUNC_OK;
  }
  // The address is looked at where it is used: a name cannot lead to another one in between.
  static curl_socket_t OnOpen(void* call, curlsocktype, curl_sockaddr* address) {
    auto* self = static_cast<Call*>(call);
    if (!self->trusted && self->proxy.empty() && !IsPublic(address->addr)) {
      self->address_refused = true;
      return CURL_SOCKET_BAD;
    }
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  bool HandleHeader(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kHeaderBytesMax) return !(too_large = true);
    if (line.starts_with("HTTP/")) reply.headers.clear();  // an interim answer came before
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    reply.headers[api::AsciiLower(api::Trimmed(line.substr(0, colon)))] =
        api::Trimmed(line.substr(colon + 1));
    return true;
  }

  bool HandleBody(std::string_view piece) {
    long status = 0;
    ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    reply.status = static_cast<int>(status);
    if (sink && (status == 200 || status == 206)) return sink(reply, piece);
    if (reply.body.size() + piece.size() > request.reply_bytes_max) return !(too_large = true);
    reply.body += piece;
    return true;
  }

  size_t FillBody(char* bytes, size_t room) {
    ssize_t got = 0;
    if (request.body_fd >= 0) {
      const auto rest = static_cast<size_t>(request.body_bytes - sent);
      got = ::pread(request.body_fd, bytes, std::min(room, rest), request.body_offset + sent);
      if (got < 0) return CURL_READFUNC_ABORT;
    } else {
      const std::string_view rest = std::string_view(request.body).substr(static_cast<size_t>(sent));
      got = static_cast<ssize_t>(std::min(room, rest.size()));
      std::copy_n(rest.data(), got, bytes);
    }
    sent += got;
    if (request.on_sent) request.on_sent(sent);
    return static_cast<size_t>(got);
  }
};

Http::Http(const AddressPolicy& policy, const std::atomic<bool>& cancelled)
    : policy_(policy), cancelled_(cancelled) {
  InitOnce();
  handle_ = std::make_unique<Handle>(Handle{::curl_easy_init(), ::curl_multi_init()});
}

Http::~Http() {
  ::curl_easy_cleanup(handle_->easy);
  ::curl_multi_cleanup(handle_->multi);
}

// How the call is connected and what it reports to.
void Http::SetUp(Call& call, char* why) {
  CURL* easy = call.easy;
  ::curl_easy_setopt(easy, CURLOPT_URL, call.request.url.c_str());
  ::curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(easy, CURLOPT_PROXY, call.proxy.c_str());  // empty: none, whatever the environment says
  ::curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
  ::curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  if (!call.request.unix_socket.empty())
    ::curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, call.request.unix_socket.c_str());
  ::curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(easy, CURLOPT_USERAGENT, "quire/" QUIRE_VERSION);
  ::curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
  ::curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  ::curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(call.request.time_max.count()));
  ::curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  ::curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(call.request.stalled_max.count()));
  if (!call.request.authorities.empty()) {
    ::curl_easy_setopt(easy, CURLOPT_CAINFO, call.request.authorities.c_str());
  } else if (const char* authorities = std::getenv("SSL_CERT_FILE");
             authorities != nullptr && *authorities != '\0') {
    ::curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
  } else if (const char* file = FindCertificateAuthorities(); file != nullptr) {
    ::curl_easy_setopt(easy, CURLOPT_CAINFO, file);
  }
  ::curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &Call::OnHeader);
  ::curl_easy_setopt(easy, CURLOPT_HEADERDATA, &call);
  ::curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Call::OnBody);
  ::curl_easy_setopt(easy, CURLOPT_WRITEDATA, &call);
  ::curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &Call::OnOpen);
  ::curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &call);
}

void Http::SetMethod(Call& call) {
  CURL* easy = call.easy;
  const Request& request = call.request;
  if (request.method == "HEAD") {
    ::curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (request.method == "POST" && request.body_fd < 0) {
    ::curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    ::curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request.body.data());
  } else if (request.method != "GET") {
    const int64_t bytes =
        request.body_fd >= 0 ? request.body_bytes : static_cast<int64_t>(request.body.size());
    ::curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    ::curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    ::curl_easy_setopt(easy, CURLOPT_READFUNCTION, &Call::OnRead);
    ::curl_easy_setopt(easy, CURLOPT_READDATA, &call);
    ::curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, &Call::OnSeek);
    ::curl_easy_setopt(easy, CURLOPT_SEEKDATA, &call);
    ::curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(bytes));
  }
}

int Http::Perform(Call& call) {
  CURLM* multi = handle_->multi;
  if (::curl_multi_add_handle(multi, call.easy) != CURLM_OK) return CURLE_FAILED_INIT;
  auto next_tick = std::chrono::steady_clock::now() + kTick;
  int running = 1;
  while (!cancelled_ && !call.interrupted && ::curl_multi_perform(multi, &running) == CURLM_OK &&
         running > 0) {
    curl_waitfd interrupt{.fd = call.request.interrupt_fd, .events = CURL_WAIT_POLLIN, .revents = 0};
    const unsigned extra = interrupt.fd >= 0 ? 1 : 0;
    if (::curl_multi_poll(multi, &interrupt, extra, static_cast<int>(kTick.count()), nullptr) != CURLM_OK)
      break;
    call.interrupted = interrupt.revents != 0;
    const auto now = std::chrono::steady_clock::now();
    if (!call.request.on_tick || now < next_tick) continue;
    call.request.on_tick();
    next_tick = now + kTick;
  }
  int code = CURLE_ABORTED_BY_CALLBACK, left = 0;
  while (const CURLMsg* message = ::curl_multi_info_read(multi, &left)) {
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  }
  ::curl_multi_remove_handle(multi, call.easy);
  return code;
}

api::Result<void> Http::ChooseProxy(Call& call, const Origin& origin) {
  if (!call.request.proxies) return {};
  const auto proxy = ProxyFor(origin, [](const char* name) -> const char* { return std::getenv(name); });
  if (!proxy) return {};
  call.proxy = *proxy;
  if (call.trusted || origin.host == proxied_host_) return {};
  if (!MayBeReachedByProxy(origin.host)) return PrivateAddress(origin);
  proxied_host_ = origin.host;
  return {};
}

api::Result<Reply> Http::Exchange(const Request& request, const Sink& sink) {
  const auto origin = OriginOf(request.url);
  if (!origin) return std::unexpected(origin.error());
  if (auto allowed = policy_.Check(*origin); !allowed) return std::unexpected(allowed.error());
  CURL* easy = handle_->easy;
  connected_ = false;
  if (easy == nullptr || handle_->multi == nullptr)
    return api::Fail(api::ErrorCode::kUnavailable, "cannot create a connection");
  ::curl_easy_reset(easy);
  Call call{.request = request, .sink = sink, .easy = easy};
  call.trusted = policy_.Trusts(*origin);
  if (auto chosen = ChooseProxy(call, *origin); !chosen) return std::unexpected(chosen.error());
  std::array<char, CURL_ERROR_SIZE> why{};
  SetUp(call, why.data());
  SetMethod(call);
  curl_slist* headers = ::curl_slist_append(nullptr, "Expect:");
  for (const std::string& header : request.headers) headers = ::curl_slist_append(headers, header.c_str());
  const std::unique_ptr<curl_slist, HeadersFreed> owned(headers);
  ::curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);

  const auto code = static_cast<CURLcode>(Perform(call));
  double connect_s = 0;
  ::curl_easy_getinfo(easy, CURLINFO_CONNECT_TIME, &connect_s);
  connected_ = connect_s > 0 || code == CURLE_OK;
  if (cancelled_ || call.interrupted) return api::Fail(api::ErrorCode::kCancelled, "cancelled");
  const std::string where =
      fmt::format("{}:{}{}", origin->host, origin->port, call.proxy.empty() ? "" : " (through a proxy)");
  if (call.address_refused && code != CURLE_OK) return PrivateAddress(*origin);
  if (call.too_large) {
    return api::Fail(api::ErrorCode::kUnavailable, fmt::format("{}: response too large", where));
  }
  if (code != CURLE_OK) {
    const std::string_view reason = why.front() != '\0' ? why.data() : ::curl_easy_strerror(code);
    return api::Fail(
        api::ErrorCode::kUnavailable,
        fmt::format("{}: {}{}", where, HintOf(code, call.request.unreachable_hint, reason), reason));
  }
  long status = 0;
  ::curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  call.reply.status = static_cast<int>(status);
  return std::move(call.reply);
}

}  // namespace quire::server::registry
