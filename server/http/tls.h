// TLS on a connection: the certificate that the server shows, and one encrypted stream. OpenSSL stays behind
// it.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "api/base/error.h"
#include "api/base/fair/party.h"
#include "server/http/awaitable.h"

namespace quire::server {

// Computes a step that takes about a millisecond in the turn of a party, where it keeps no client waiting:
// anybody who can connect can ask for thousands of signatures. Ends when that is done. The step stays where
// it is until then.
using ComputeStep =
    std::function<Awaitable<void>(const fair::PartyId& party, const std::function<void()>& step)>;

struct IoResult {
  boost::system::error_code error;
  size_t bytes = 0;
};

// A certificate chain with its private key, TLS 1.2 or later. Cheap to copy; streams keep what they use.
class TlsContext {
 public:
  // Both files are PEM. The error names the file that is at fault, or says that the two do not belong
  // together.
  static api::Result<TlsContext> Load(const std::filesystem::path& certificate,
                                      const std::filesystem::path& private_key);

 private:
  friend class TlsStream;
  struct Impl;
  explicit TlsContext(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// I/O thread only; one read and one write at a time. Canceling the socket cancels them.
class TlsStream {
 public:
  // The socket outlives the stream.
  TlsStream(boost::asio::generic::stream_protocol::socket& socket, const TlsContext& context);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;
  ~TlsStream();

  // `compute` outlives it. Once, before anything else.
  Awaitable<bool> Handshake(const ComputeStep& compute, fair::PartyId party);
  // A handshake in progress ends without one, once reads and writes of the socket are canceled, too. A step
  // that waits for its turn is not computed then.
  void CancelHandshake();
  // A peer that closes without a close_notify is also eof. One that sends record after record without data is
  // an error.
  Awaitable<IoResult> ReadSome(char* out, size_t capacity);
  Awaitable<IoResult> WriteSome(std::string_view bytes);
  // Tells the peer that nothing follows and waits for it to say the same.
  Awaitable<void> Shutdown();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
