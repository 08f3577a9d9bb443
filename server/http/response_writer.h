// Writes one answer to a connection: plain or as a stream, with the framing the request's version and method
// ask for. I/O thread only; lives as long as its request.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/base/fair/quota.h"
#include "server/http/access.h"
#include "server/http/body_reader.h"
#include "server/http/connection.h"
#include "server/http/content_encoding.h"
#include "server/http/exchange.h"
#include "server/http/transport.h"

namespace quire::server {

// Why there is no memory for a body or an answer, as a client reads it: 429 for its party's share, else 503.
inline constexpr std::string_view kBodies = "request bodies", kAnswers = "answers";
std::optional<ParseFailure> FailureOf(const std::optional<fair::Quota::Refusal>& refusal,
                                      std::string_view what);

class ResponseWriter : public Exchange {
 public:
  // All references outlive the writer.
  struct Memory {
    fair::Quota::Lease& body;
    fair::Quota::Lease& answer;
  };
  ResponseWriter(const Transport& transport, Connection& connection, HttpRequest& request, RequestLog& log,
                 BodyReader& body, Memory memory, const boost::asio::any_io_executor& executor);

  const HttpRequest& request() const override { return request_; }
  RequestLog& log() override { return log_; }
  const std::string& id() const override { return log_.id; }
  Awaitable<std::optional<std::string>> ReadBody() override { return body_.Next(); }
  void DropBody() override;
  uint64_t body_bytes() const override { return request_.body.size() + dropped_bytes_; }
  // The rest of the client's body is discarded first, or the connection is closed after the reply.
  Awaitable<bool> Send(HttpResponse response) override;
  Awaitable<bool> Stream(std::string_view content_type, std::string bytes) override;
  Awaitable<bool> EndStream() override;
  void EndWork() override { permit_ = {}; }
  void KeepAlive(std::string_view content_type, std::string_view bytes) override;
  std::optional<ParseFailure> ReserveRequest(uint64_t bytes) override;
  void ShrinkRequest(uint64_t bytes) override;
  std::optional<ParseFailure> ReserveAnswer(uint64_t bytes) override;
  std::string ClientText(const std::string& message) override;
  bool started() const override { return state_ != State::kNothing; }
  // As started(), or ProbeClient() has sent something.
  bool begun() const { return started() || probed_header_bytes_ > 0; }

  // Runs beside the handler until canceled and sends keep-alives; see Exchange::KeepAlive.
  Awaitable<void> SendKeepAlives();
  // For a client that has sent all it will send, beside the handler: ends when the client is found to be
  // gone, else only by cancellation. Now and at growing intervals it sends a byte that every answer has at
  // this point. A client that waits for its answer does not notice; the system of one that has gone refuses
  // the byte.
  Awaitable<void> ProbeClient();

  void SetPermit(fair::Quota::Lease permit) { permit_ = std::move(permit); }
  void AddField(HeaderField field) { fields_.push_back(std::move(field)); }
  void CloseAfterwards() { close_ = true; }
  bool complete() const { return state_ == State::kComplete; }
  // Whether another request may follow on the connection; known once complete.
  bool reusable() const { return complete() && !close_; }

 private:
  enum class State { kNothing, kStreaming, kComplete };

  std::string Header(int status, std::string_view content_type, const std::vector<HeaderField>& fields);
  std::string StreamHeader(std::string_view content_type);
  // In pieces: one at a time is encoded and written, so that the reply takes no more memory than before.
  Awaitable<bool> SendEncoded(HttpResponse response, std::unique_ptr<GzipEncoder> encoder);
  std::string Framed(std::string_view bytes) const;
  std::string NextProbe();
  // Both, one behind the other. REQUIRES: `rest` outlives the call.
  Awaitable<bool> WriteAlone(std::string bytes, std::string_view rest = {});

  const Transport& transport_;
  Connection& connection_;
  HttpRequest& request_;
  RequestLog& log_;
  BodyReader& body_;
  const Memory memory_;
  fair::Quota::Lease permit_;
  uint64_t dropped_bytes_ = 0;  // of the body
  std::vector<HeaderField> fields_;
  size_t probed_header_bytes_ = 0;  // sent by ProbeClient()
  bool chunks_ = false;             // the next bytes of the answer are those of a chunk
  State state_ = State::kNothing;
  AnswerKind kind_ = AnswerKind::kStream;
  bool close_ = false;

  const uint64_t body_limit_;  // work on other threads asks for it
  std::chrono::nanoseconds keep_alive_interval_;
  std::string keep_alive_type_;  // empty: no keep-alives are sent
  std::string keep_alive_bytes_;
  boost::asio::steady_timer keep_alive_timer_;
  boost::asio::steady_timer write_done_;  // never expires; canceled when a write ends
  std::chrono::steady_clock::time_point last_write_;
  bool writing_ = false;
};

}  // namespace quire::server
