#include <memory>
#include <utility>

#include "api/anthropic/messages.h"
#include "api/base/random_id.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace anthropic = api::anthropic;

GenerationJob MessagesJob(anthropic::MessagesRequest parsed, const api::ModelDefaults& defaults) {
  auto reply = std::make_unique<anthropic::MessagesEncoder>(
      anthropic::ReplyHead{.id = api::RandomId("msg_"), .model = parsed.model, .stream = parsed.stream});
  return {anthropic::ToRequest(std::move(parsed), defaults), std::move(reply)};
}

GenerationJob CountJob(anthropic::MessagesRequest parsed, const api::ModelDefaults& defaults) {
  api::Request request = anthropic::ToRequest(std::move(parsed), defaults);
  request.prompt_only = true;
  return {std::move(request), std::make_unique<anthropic::TokenCountEncoder>()};
}

}  // namespace

void AddAnthropicRoutes(Router& router, Services& services) {
  const auto answer = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, anthropic::ParseMessages, MessagesJob);
  };
  const auto count = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, anthropic::ParseCountTokens, CountJob);
  };
  router.Add({"POST", "/v1/messages", answer, true},
             {"anthropic", "Next message of a conversation", "Messages", kJsonOrEvents});
  router.Add({"POST", "/v1/messages/count_tokens", count, true},
             {"anthropic", "Length of a prompt in tokens", "CountTokens"});
}

}  // namespace quire::server
