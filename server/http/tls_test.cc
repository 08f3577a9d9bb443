// TLS over real sockets: whose handshake is computed, and what follows it.
#include "server/http/tls.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/http/party.h"
#include "server/http/tls_handshake.h"
#include "server/testing/raw_client.h"
#include "server/testing/test_server.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using testing::RawClient;
using testing::TestServer;

constexpr const char* kOther = "127.0.0.2";
constexpr std::string_view kRequest = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using File = std::unique_ptr<BIO, Freed<BIO_free>>;

TlsContext MakeContext() {
  char name[] = "/tmp/quire-tls-XXXXXX";
  const fs::path folder = ::mkdtemp(name);
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  {
    const File file(BIO_new_file((folder / "certificate").c_str(), "w"));
    EXPECT_EQ(PEM_write_bio_X509(file.get(), certificate.get()), 1);
  }
  {
    const File file(BIO_new_file((folder / "key").c_str(), "w"));
    EXPECT_EQ(PEM_write_bio_PrivateKey(file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  }
  auto context = TlsContext::Load(folder / "certificate", folder / "key");
  EXPECT_TRUE(context.has_value()) << context.error().message;
  fs::remove_all(folder);
  return *std::move(context);
}

// A client whose bytes the test sends when and how it likes.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port, const char* source = "127.0.0.1", int version = TLS1_3_VERSION)
      : socket_(port, source), context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_.get())) {
    SSL_set_max_proto_version(ssl_.get(), version);
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_.get());
  }

  RawClient& socket() { return socket_; }
  SSL* ssl() { return ssl_.get(); }
  // What is to be sent now.
  std::string Output() {
    char* bytes = nullptr;
    BIO* const output = SSL_get_wbio(ssl_.get());
    const long size = BIO_get_mem_data(output, &bytes);
    std::string all(bytes, static_cast<size_t>(size));
    BIO_reset(output);
    return all;
  }
  std::string Hello() {
    SSL_do_handshake(ssl_.get());
    return Output();
  }
  // Up to the last flight, which is Output().
  void ShakeHands() {
    socket_.Send(Hello());
    bool more = true;
    while (more && SSL_get_error(ssl_.get(), SSL_do_handshake(ssl_.get())) == SSL_ERROR_WANT_READ) {
      socket_.Send(Output());
      more = Receive();
    }
  }
  void Write(std::string_view bytes) {
    EXPECT_EQ(SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())),
              static_cast<int>(bytes.size()));
  }
  // Up to this; what came until then.
  std::string ReadTo(std::string_view end) {
    std::string all;
    while (!all.ends_with(end)) {
      char piece[4096];
      const int got = SSL_read(ssl_.get(), piece, sizeof(piece));
      if (got > 0) {
        all.append(piece, static_cast<size_t>(got));
      } else if (!SSL_want_read(ssl_.get()) || !Receive()) {
        return all;
      }
    }
    return all;
  }

 private:
  bool Receive() {
    const std::string bytes = socket_.ReadSome(1);
    BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
    return !bytes.empty();
  }

  RawClient socket_;
  std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Freed<SSL_free>> ssl_;
};

// One that waits for its client is not closed for those of a party that has hundreds.
TEST(Tls, AFloodOfHandshakesClosesItsOwn) {
  constexpr size_t kFlood = 520;
  TestServer server;
  const uint16_t port = server.ListenTls(MakeContext());
  TlsClient innocent(port, kOther);
  innocent.ShakeHands();  // its last flight is still to come
  std::vector<std::unique_ptr<TlsClient>> flood(kFlood);
  for (auto& client : flood) {
    client = std::make_unique<TlsClient>(port);
    client->socket().Send(client->Hello());
  }
  flood.front()->socket().ReadToEnd();
  innocent.Write(kRequest);
  innocent.socket().Send(innocent.Output());
  EXPECT_TRUE(innocent.ReadTo("hi").starts_with("HTTP/1.1 200 "));
}

// The request comes in one piece with the end of the handshake, and the other way round byte by byte.
TEST(Tls, ReadsWhatFollowsTheHandshake) {
  TestServer server;
  const uint16_t port = server.ListenTls(MakeContext());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(port, kOther, version);
    client.ShakeHands();
    client.Write(kRequest);
    client.socket().Send(client.Output());
    EXPECT_TRUE(client.ReadTo("hi").starts_with("HTTP/1.1 200 ")) << version;
  }
  TlsClient client(port);
  for (const char byte : client.Hello()) client.socket().Send({&byte, 1});
  client.ShakeHands();
  client.Write(kRequest);
  for (const char byte : client.Output()) client.socket().Send({&byte, 1});
  EXPECT_TRUE(client.ReadTo("hi").starts_with("HTTP/1.1 200 "));
}

// Bytes that are no handshake are answered at once, with an alert or an end.
TEST(Tls, OtherProtocolsEndAtOnce) {
  TestServer server;
  const uint16_t port = server.ListenTls(MakeContext());
  for (const std::string_view bytes : {kRequest, std::string_view("\x16\x03\x01\xff\xff_____", 10),
                                       std::string_view("\x80\x2e\x01\x03\x01_____", 10)}) {
    RawClient client(port);
    client.Send(bytes);
    EXPECT_LE(client.ReadToEnd().size(), 7u);
  }
  RawClient plain(server.port());
  plain.Send(kRequest);
  EXPECT_EQ(plain.Read().status, 200);
}

// A handshake of a thousand records costs no thousand steps.
TEST(Tls, ManyRecordsAreNoHandshake) {
  TestServer server;
  const uint16_t port = server.ListenTls(MakeContext());
  TlsClient client(port);
  const std::string hello = client.Hello().substr(5);
  std::string records;
  for (const char byte : hello) records += std::string("\x16\x03\x01\0\x01", 5) + byte;
  client.socket().TrySend(records);
  EXPECT_LE(client.socket().ReadToEnd().size(), 7u);
}

// New keys a few times are a client's right; a flood of them is the end. In between the connection is as
// usable as before.
TEST(Tls, AFloodOfNewKeysEndsTheConnection) {
  TestServer server;
  const uint16_t port = server.ListenTls(MakeContext());
  TlsClient client(port);
  client.ShakeHands();
  const auto new_keys = [&client](int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(SSL_key_update(client.ssl(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
      EXPECT_EQ(SSL_do_handshake(client.ssl()), 1);
    }
  };
  for (int i = 0; i < 4; ++i) {
    new_keys(30);
    client.Write(kRequest);
    client.socket().Send(client.Output());
    EXPECT_TRUE(client.ReadTo("hi").starts_with("HTTP/1.1 200 "));
  }
  new_keys(40);
  client.Write(kRequest);
  client.socket().TrySend(client.Output());
  EXPECT_EQ(client.ReadTo("hi"), "");
}

TEST(Tls, NobodyNegotiatesAgain) {
  TestServer server;
  const uint16_t port = server.ListenTls(MakeContext());
  TlsClient client(port, "127.0.0.1", TLS1_2_VERSION);
  client.ShakeHands();
  client.Write(kRequest);
  client.socket().Send(client.Output());
  EXPECT_TRUE(client.ReadTo("hi").starts_with("HTTP/1.1 200 "));
  ERR_clear_error();
  EXPECT_EQ(SSL_renegotiate(client.ssl()), 1);
  client.ShakeHands();
  EXPECT_EQ(ERR_GET_REASON(ERR_peek_error()), SSL_R_NO_RENEGOTIATION);
}

// The deadline passed while nothing was under way that could be canceled.
TEST(Tls, ACanceledHandshakeReadsNoMore) {
  namespace asio = boost::asio;
  asio::io_context io(1);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  asio::generic::stream_protocol::socket client(io, asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
  asio::generic::stream_protocol::socket socket(io, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]);
  const ComputeStep compute = [](const fair::PartyId&, const std::function<void()>& step) -> Awaitable<void> {
    step();
    co_return;
  };
  const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> context(SSL_CTX_new(TLS_server_method()));
  const std::unique_ptr<SSL, Freed<SSL_free>> ssl(SSL_new(context.get()));
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  TlsHandshake handshake(socket, ssl.get(), compute, PartyOf("", "party"));
  handshake.Cancel();
  std::optional<bool> done;
  asio::co_spawn(
      io, [&]() -> Awaitable<void> { done = co_await handshake.Run(); }, asio::detached);
  io.poll();
  EXPECT_EQ(done, false);
  client.close();  // ends what still waits
  io.run();
}

}  // namespace
}  // namespace quire::server
