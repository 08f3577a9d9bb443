#include "server/http/tls_handshake.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <new>
#include <utility>

#include "api/base/io_thread.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;

constexpr size_t kHeaderBytes = 5;                     // type, version, length
constexpr size_t kRecordBytesMax = (16 << 10) + 2048;  // of a record's content, encrypted
constexpr int kRecordsMax = 32;                        // of a client; a handshake has three or four
constexpr unsigned char kFirstType = 20,
                        kLastType = 23;  // SSL3_RT_CHANGE_CIPHER_SPEC to SSL3_RT_APPLICATION_DATA

size_t ByteAt(std::string_view bytes, size_t index) { return static_cast<unsigned char>(bytes[index]); }

size_t ContentBytes(std::string_view header) { return ByteAt(header, 3) << 8 | ByteAt(header, 4); }

bool IsHeader(std::string_view header) {
  return ByteAt(header, 0) >= kFirstType && ByteAt(header, 0) <= kLastType &&
         ByteAt(header, 1) == SSL3_VERSION_MAJOR && ContentBytes(header) <= kRecordBytesMax;
}

}  // namespace

TlsHandshake::TlsHandshake(asio::generic::stream_protocol::socket& socket, SSL* ssl,
                           const ComputeStep& compute, fair::PartyId party)
    : socket_(socket), ssl_(ssl), compute_(compute), party_(std::move(party)) {
  input_ = BIO_new(BIO_s_mem());
  output_ = BIO_new(BIO_s_mem());
  if (input_ == nullptr || output_ == nullptr) {
    BIO_free(input_);
    BIO_free(output_);
    throw std::bad_alloc();
  }
  own_ = SSL_get_rbio(ssl_);
  BIO_up_ref(own_);
  SSL_set_bio(ssl_, input_, output_);
}

TlsHandshake::~TlsHandshake() { SSL_set_bio(ssl_, own_, own_); }

Awaitable<bool> TlsHandshake::Run() {
  SSL_set_accept_state(ssl_);
  Progress progress = Progress::kGoesOn;
  const std::function<void()> step = [this, &progress] {
    if (!canceled_) progress = Step();
  };
  for (int records = 0; records < kRecordsMax && progress == Progress::kGoesOn && !malformed_; ++records) {
    const bool came = co_await ReadRecord();
    if (!came) co_return false;
    co_await compute_(party_, step);
    if (canceled_) co_return false;
    const bool sent = co_await SendOutput();  // an alert, too
    if (!sent) co_return false;
  }
  if (progress != Progress::kDone) DropReceived();
  co_return progress == Progress::kDone;
}

// Exactly one: what follows the handshake is not for it. A header that is none is left to OpenSSL, which
// knows what to answer.
Awaitable<bool> TlsHandshake::ReadRecord() {
  if (canceled_) co_return false;
  record_.resize(kHeaderBytes);
  const auto [header_error, header_bytes] = co_await asio::async_read(socket_, asio::buffer(record_), kTuple);
  if (header_error) co_return false;
  malformed_ = !IsHeader(record_);
  if (canceled_) co_return false;
  if (!malformed_) {
    record_.resize(kHeaderBytes + ContentBytes(record_));
    const auto [error, bytes] = co_await asio::async_read(
        socket_, asio::buffer(record_.data() + kHeaderBytes, record_.size() - kHeaderBytes), kTuple);
    if (error) co_return false;
  }
  const int size = static_cast<int>(record_.size());
  co_return BIO_write(input_, record_.data(), size) == size;
}

Awaitable<bool> TlsHandshake::SendOutput() {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(output_, &bytes);
  if (size <= 0) co_return true;
  if (canceled_) co_return false;
  const auto [error, sent] =
      co_await asio::async_write(socket_, asio::buffer(bytes, static_cast<size_t>(size)), kTuple);
  BIO_reset(output_);
  co_return !error;
}

// A close with bytes that nobody read is a reset, which would overtake the alert.
void TlsHandshake::DropReceived() {
  std::array<char, 16 << 10> unused;
  ::recv(socket_.native_handle(), unused.data(), unused.size(), MSG_DONTWAIT);
}

TlsHandshake::Progress TlsHandshake::Step() {
  api::AssertMayBlock();
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  const int error = SSL_get_error(ssl_, result);
  if (error == SSL_ERROR_NONE) return Progress::kDone;
  return error == SSL_ERROR_WANT_READ ? Progress::kGoesOn : Progress::kFailed;
}

}  // namespace quire::server
