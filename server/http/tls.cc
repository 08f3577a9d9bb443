#include "server/http/tls.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <string>
#include <utility>

#include "api/base/io_thread.h"
#include "server/http/awaitable.h"
#include "server/http/tls_handshake.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

// HTTP/1.1 is all that is spoken; a client that offers other protocols only is not stopped for it.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* offered,
                   unsigned int offered_length, void*) {
  static constexpr std::array<unsigned char, 9> kHttp = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* chosen = nullptr;
  const int found =
      SSL_select_next_proto(&chosen, out_length, kHttp.data(), kHttp.size(), offered, offered_length);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

// Records without data that a client may send one after the other. It takes 17 us to go over to new keys, in
// 27 bytes, and OpenSSL looks at all records that have come at once.
constexpr int kOtherRecordsMax = 32;

// Called for each record. Beyond the limit OpenSSL reads no more, as after a client's last word.
void CountRecord(int is_write, int, int content, const void* bytes, size_t size, SSL* ssl, void* count) {
  // The type is in the header, or, since TLS 1.3, encrypted.
  const bool has_type = content == SSL3_RT_HEADER || content == SSL3_RT_INNER_CONTENT_TYPE;
  if (is_write != 0 || !has_type || size == 0) return;
  if (*static_cast<const unsigned char*>(bytes) == SSL3_RT_APPLICATION_DATA) return;
  if (++*static_cast<int*>(count) > kOtherRecordsMax) {
    SSL_set_shutdown(ssl, SSL_get_shutdown(ssl) | SSL_RECEIVED_SHUTDOWN);
  }
}

}  // namespace

struct TlsContext::Impl {
  ssl::context context{ssl::context::tls_server};
};

struct TlsStream::Impl {
  std::shared_ptr<TlsContext::Impl> context;
  ssl::stream<Socket&> stream;
  std::optional<TlsHandshake> handshake = {};  // while it goes on
  int other_records = 0;                       // since the last data
};

api::Result<TlsContext> TlsContext::Load(const std::filesystem::path& certificate,
                                         const std::filesystem::path& private_key) {
  api::AssertMayBlock();
  auto impl = std::make_shared<Impl>();
  error_code ec;
  const auto fail = [&ec](const std::string& what) {
    return api::Fail(api::ErrorCode::kInvalidArgument, fmt::format("{}: {}", what, ec.message()));
  };
  impl->context.set_options(ssl::context::default_workarounds | ssl::context::no_compression, ec);
  SSL_CTX* native = impl->context.native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_alpn_select_cb(native, ChooseProtocol, nullptr);
  impl->context.use_certificate_chain_file(certificate.string(), ec);
  if (ec) return fail("the certificate " + certificate.string());
  impl->context.use_private_key_file(private_key.string(), ssl::context::pem, ec);
  if (ec) return fail("the private key " + private_key.string());
  if (SSL_CTX_check_private_key(native) != 1) {
    return api::Fail(api::ErrorCode::kInvalidArgument,
                     fmt::format("the private key {} does not match the certificate {}", private_key.string(),
                                 certificate.string()));
  }
  return TlsContext(std::move(impl));
}

TlsStream::TlsStream(Socket& socket, const TlsContext& context)
    : impl_(new Impl{context.impl_, ssl::stream<Socket&>(socket, context.impl_->context)}) {}

TlsStream::~TlsStream() = default;

Awaitable<bool> TlsStream::Handshake(const ComputeStep& compute, fair::PartyId party) {
  Socket& socket = impl_->stream.next_layer();
  TlsHandshake& handshake =
      impl_->handshake.emplace(socket, impl_->stream.native_handle(), compute, std::move(party));
  const bool done = co_await handshake.Run();
  impl_->handshake.reset();
  SSL_set_msg_callback(impl_->stream.native_handle(), CountRecord);
  SSL_set_msg_callback_arg(impl_->stream.native_handle(), &impl_->other_records);
  co_return done;
}

void TlsStream::CancelHandshake() {
  if (impl_->handshake) impl_->handshake->Cancel();
}

Awaitable<IoResult> TlsStream::ReadSome(char* out, size_t capacity) {
  auto [ec, bytes] = co_await impl_->stream.async_read_some(asio::buffer(out, capacity), kTuple);
  if (bytes > 0) impl_->other_records = 0;
  if (ec == ssl::error::stream_truncated) ec = asio::error::eof;
  co_return IoResult{ec, bytes};
}

Awaitable<IoResult> TlsStream::WriteSome(std::string_view bytes) {
  const auto [ec, sent] =
      co_await impl_->stream.async_write_some(asio::buffer(bytes.data(), bytes.size()), kTuple);
  co_return IoResult{ec, sent};
}

Awaitable<void> TlsStream::Shutdown() { co_await impl_->stream.async_shutdown(kTuple); }

}  // namespace quire::server
