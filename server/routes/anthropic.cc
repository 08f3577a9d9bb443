#include <utility>

#include "api/anthropic/messages.h"
#include "api/base/random_id.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace anthropic = api::anthropic;

class MessagesReply : public Reply {
 public:
  explicit MessagesReply(const anthropic::MessagesRequest& request)
      : stream_(request.stream),
        encoder_({.id = api::RandomId("msg_"), .model = request.model, .stream = request.stream}) {}

  bool streams() const override { return stream_; }
  std::string_view stream_type() const override { return "text/event-stream"; }
  std::string_view keep_alive() const override { return anthropic::kPing; }
  std::string OnEvent(const api::Event& event, const ReplyTiming&) override {
    return encoder_.OnEvent(event);
  }

 private:
  bool stream_;
  anthropic::MessagesEncoder encoder_;
};

class TokenCountReply : public Reply {
 public:
  bool streams() const override { return false; }
  std::string_view stream_type() const override { return {}; }
  std::string_view keep_alive() const override { return {}; }
  std::string OnEvent(const api::Event& event, const ReplyTiming&) override {
    const auto* finished = std::get_if<api::Finished>(&event);
    return finished == nullptr ? std::string() : anthropic::EncodeTokenCount(finished->usage.prompt_tokens);
  }
};

enum class ResultKind : uint8_t { kAnswer, kTokenCount };

Awaitable<void> Messages(Services& services, Exchange& exchange, ResultKind kind) {
  const auto parse = kind == ResultKind::kAnswer ? anthropic::ParseMessages : anthropic::ParseCountTokens;
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  exchange.log().model = parsed->model;
  auto model = co_await FindModelToAnswer(services, exchange, parsed->model);
  if (!model) co_return;
  MessagesReply answer(*parsed);
  TokenCountReply count;
  const auto keep_alive = parsed->keep_alive;
  GenerationJob job{SpecOf(*model), anthropic::ToRequest(*std::move(parsed), TakeDefaults(*model)),
                    keep_alive};
  SetTenant(exchange.request(), job.request.client);
  job.request.prompt_only = kind == ResultKind::kTokenCount;
  Reply& reply = job.request.prompt_only ? static_cast<Reply&>(count) : answer;
  co_await SendReply(exchange, services.backend, std::move(job), reply);
}

}  // namespace

void AddAnthropicRoutes(Router& router, Services& services) {
  const auto answer = [&services](Exchange& exchange) {
    return Messages(services, exchange, ResultKind::kAnswer);
  };
  const auto count = [&services](Exchange& exchange) {
    return Messages(services, exchange, ResultKind::kTokenCount);
  };
  router.Add({"POST", "/v1/messages", answer, true});
  router.Add({"POST", "/v1/messages/count_tokens", count, true});
}

}  // namespace quire::server
