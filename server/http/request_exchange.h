// The exchange of one request: what it holds of memory and of its key's limits, and its answer's writer. I/O
// thread only; lives as long as its request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/fair/quota.h"
#include "server/http/answer_writer.h"
#include "server/http/body_reader.h"
#include "server/http/exchange.h"
#include "server/http/transport.h"

namespace quire::server {

// Why there is no memory for a body or an answer, as a client reads it: 429 for its party's share, else 503.
inline constexpr std::string_view kBodies = "request bodies", kAnswers = "answers";
std::optional<ParseFailure> FailureOf(const std::optional<fair::Quota::Refusal>& refusal,
                                      std::string_view what);

class RequestExchange : public Exchange {
 public:
  // All references outlive the exchange.
  RequestExchange(Transport& transport, HttpRequest& request, RequestLog& log, BodyReader& body,
                  AnswerWriter& writer)
      : transport_(transport),
        request_(request),
        log_(log),
        body_(body),
        writer_(writer),
        body_limit_(transport.limits.Bodies().party),
        body_memory_(transport.bodies, {}),
        answer_memory_(transport.answers, {}) {}

  const HttpRequest& request() const override { return request_; }
  RequestLog& log() override { return log_; }
  const std::string& id() const override { return log_.id; }
  Awaitable<std::optional<std::string>> ReadBody() override { return body_.Next(); }
  void DropBody() override;
  uint64_t body_bytes() const override { return request_.body.size() + dropped_bytes_; }
  // The rest of the client's body is discarded first, or the connection is closed after the reply.
  Awaitable<bool> Send(HttpResponse response) override;
  Awaitable<bool> Stream(std::string_view content_type, std::string bytes) override {
    return writer_.Stream(content_type, std::move(bytes));
  }
  Awaitable<bool> EndStream() override { return writer_.EndStream(); }
  void EndWork() override { permit_ = {}; }
  void KeepAlive(std::string_view content_type, std::string_view bytes) override {
    writer_.KeepAlive(content_type, bytes);
  }
  std::optional<ParseFailure> ReserveRequest(uint64_t bytes) override;
  void ShrinkRequest(uint64_t bytes) override;
  std::optional<ParseFailure> ReserveAnswer(uint64_t bytes) override;
  std::string ClientText(const std::string& message) override;
  bool started() const override { return writer_.started(); }

  // Whose the memory is from now on; before, it is nobody's.
  void SetParty(const fair::PartyId& party);
  void SetPermit(fair::Quota::Lease permit) { permit_ = std::move(permit); }
  fair::Quota::Lease& body_memory() { return body_memory_; }

 private:
  Transport& transport_;
  HttpRequest& request_;
  RequestLog& log_;
  BodyReader& body_;
  AnswerWriter& writer_;
  const uint64_t body_limit_;  // work on other threads asks for it
  fair::Quota::Lease body_memory_;
  fair::Quota::Lease answer_memory_;
  fair::Quota::Lease permit_;
  uint64_t dropped_bytes_ = 0;  // of the body
};

}  // namespace quire::server
