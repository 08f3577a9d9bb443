// The server's side of a TLS handshake. OpenSSL computes it where and when ComputeStep says, on bytes in
// memory: the socket stays with the I/O thread. I/O thread only.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <string>
#include <string_view>

#include "server/http/awaitable.h"
#include "server/http/tls.h"

namespace quire::server {

class TlsHandshake {
 public:
  // Takes the place of the BIOs of `ssl` until its end. Nothing else may use `ssl` meanwhile. All outlive it.
  // Throws std::bad_alloc.
  TlsHandshake(boost::asio::generic::stream_protocol::socket& socket, SSL* ssl, const ComputeStep& compute,
               fair::PartyId party);
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;
  ~TlsHandshake();

  // True: done, and nothing behind it has been read from the socket. Once.
  Awaitable<bool> Run();
  // Run() ends, also where nothing is under way at the moment. A read or write of the socket must be
  // canceled, too.
  void Cancel() { canceled_ = true; }

 private:
  enum class Progress { kGoesOn, kDone, kFailed };

  Awaitable<bool> ReadRecord();
  Awaitable<bool> SendOutput();
  void DropReceived();
  Progress Step();

  boost::asio::generic::stream_protocol::socket& socket_;
  SSL* ssl_;
  BIO* own_ = nullptr;     // what `ssl` had, for reading and writing
  BIO* input_ = nullptr;   // the SSL's
  BIO* output_ = nullptr;  // the SSL's
  const ComputeStep& compute_;
  const fair::PartyId party_;
  std::atomic<bool> canceled_ = false;  // a step that waits looks at it on another thread
  std::string record_;
  bool malformed_ = false;  // what came is no record, and no more is read
};

}  // namespace quire::server
