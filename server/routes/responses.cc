#include "api/openai/responses.h"

#include <chrono>
#include <utility>

#include "api/base/random_id.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace openai = api::openai;

class ResponsesReply : public Reply {
 public:
  ResponsesReply(const openai::ResponsesRequest& request, const api::GenerationParams& params)
      : stream_(request.stream),
        encoder_({.id = api::RandomId("resp_"),
                  .message_id = api::RandomId("msg_"),
                  .model = request.model,
                  .created = std::chrono::system_clock::now(),
                  .stream = request.stream,
                  .instructions = request.instructions,
                  .max_output_tokens = request.options.num_predict,
                  .temperature = params.temperature,
                  .top_p = params.top_p,
                  .parallel_tool_calls = !request.tools.single_call,
                  .text_json = request.text_json,
                  .tools_json = request.tools_json,
                  .tool_choice_json = request.tool_choice_json}) {}

  bool streams() const override { return stream_; }
  std::string_view stream_type() const override { return "text/event-stream"; }
  std::string_view keep_alive() const override { return ": waiting\n\n"; }
  std::string OnEvent(const api::Event& event, const ReplyTiming&) override {
    return encoder_.OnEvent(event);
  }

 private:
  bool stream_;
  openai::ResponsesEncoder encoder_;
};

Awaitable<void> Respond(Services& services, Exchange& exchange) {
  auto parsed = co_await ParseBody(services, exchange, openai::ParseResponses);
  if (!parsed) co_return;
  exchange.log().model = parsed->model;
  LogUnknownOptions(exchange, parsed->unknown_options);
  auto model = co_await FindModelToAnswer(services, exchange, parsed->model);
  if (!model) co_return;
  GenerationJob job{SpecOf(*model), openai::ToRequest(*parsed, TakeDefaults(*model)), parsed->keep_alive};
  SetTenant(exchange.request(), job.request.client);
  ResponsesReply reply(*parsed, job.request.params);
  co_await SendReply(exchange, services.backend, std::move(job), reply);
}

}  // namespace

void AddResponsesRoutes(Router& router, Services& services) {
  router.Add({"POST", "/v1/responses",
              [&services](Exchange& exchange) { return Respond(services, exchange); }, true});
}

}  // namespace quire::server
