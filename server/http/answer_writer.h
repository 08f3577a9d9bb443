// Writes one answer to a connection: plain or as a stream, with the framing the request's version and method
// ask for. I/O thread only; lives as long as its request.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/awaitable.h"
#include "server/http/connection.h"
#include "server/http/content_encoding.h"
#include "server/http/message.h"
#include "server/http/request_log.h"
#include "server/http/transport.h"

namespace quire::server {

class AnswerWriter {
 public:
  // All references outlive the writer.
  AnswerWriter(const Transport& transport, Connection& connection, const HttpRequest& request,
               RequestLog& log, const boost::asio::any_io_executor& executor);

  // Whether the client and the response take an encoding.
  bool MayEncode(const HttpResponse& response) const;
  // As an Exchange's, of which they are. The request's body was read, or close() is true. `encode`: REQUIRES
  // MayEncode().
  Awaitable<bool> Send(HttpResponse response, bool encode);
  Awaitable<bool> Stream(std::string_view content_type, std::string bytes);
  Awaitable<bool> EndStream();
  void KeepAlive(std::string_view content_type, std::string_view bytes);
  bool started() const { return state_ != State::kNothing; }
  // As started(), or ProbeClient() has sent something.
  bool begun() const { return started() || probed_header_bytes_ > 0; }

  // Runs beside the handler until canceled and sends keep-alives; see Exchange::KeepAlive.
  Awaitable<void> SendKeepAlives();
  // For a client that has sent all it will send, beside the handler: ends when the client is found to be
  // gone, else only by cancellation. Now and at growing intervals it sends a byte that every answer has at
  // this point. A client that waits for its answer does not notice; the system of one that has gone refuses
  // the byte.
  Awaitable<void> ProbeClient();

  void AddField(HeaderField field) { fields_.push_back(std::move(field)); }
  void CloseAfterwards() { close_ = true; }
  bool close() const { return close_; }
  bool complete() const { return state_ == State::kComplete; }
  // Whether another request may follow on the connection; known once complete.
  bool reusable() const { return complete() && !close_; }

 private:
  enum class State { kNothing, kStreaming, kComplete };

  // One write at a time.
  class Output {
   public:
    Output(Connection& connection, const boost::asio::any_io_executor& executor);
    // Both, one behind the other. REQUIRES: `rest` outlives the call.
    Awaitable<bool> Write(std::string bytes, AnswerKind kind, std::string_view rest = {});
    Awaitable<void> Wait();  // until no write is under way
    bool writing() const { return writing_; }
    std::chrono::steady_clock::time_point last() const { return last_; }
    void CountFromNow() { last_ = std::chrono::steady_clock::now(); }

   private:
    Connection& connection_;
    boost::asio::steady_timer done_;  // never expires; canceled when a write ends
    std::chrono::steady_clock::time_point last_;
    bool writing_ = false;
  };

  std::string Header(int status, std::string_view content_type, const std::vector<HeaderField>& fields);
  std::string StreamHeader(std::string_view content_type);
  // In pieces: one at a time is encoded and written, so that the reply takes no more memory than before.
  Awaitable<bool> SendEncoded(HttpResponse response, std::unique_ptr<GzipEncoder> encoder);
  std::string Framed(std::string_view bytes) const;
  std::string NextProbe();

  const Transport& transport_;
  const HttpRequest& request_;
  RequestLog& log_;
  Output output_;
  std::vector<HeaderField> fields_;
  size_t probed_header_bytes_ = 0;  // sent by ProbeClient()
  bool chunks_ = false;             // the next bytes of the answer are those of a chunk
  State state_ = State::kNothing;
  AnswerKind kind_ = AnswerKind::kStream;
  bool close_ = false;
  std::string keep_alive_type_;  // empty: no keep-alives are sent
  std::string keep_alive_bytes_;
  boost::asio::steady_timer keep_alive_timer_;
};

}  // namespace quire::server
