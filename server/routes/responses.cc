#include "api/openai/responses.h"

#include <chrono>
#include <memory>
#include <utility>

#include "api/base/random_id.h"
#include "server/routes/handlers.h"
#include "server/routes/openai_jobs.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace openai = api::openai;

GenerationJob InputTokensJob(openai::ResponsesRequest parsed, const api::ModelDefaults& defaults) {
  api::Request request = openai::ToRequest(std::move(parsed), defaults);
  request.prompt_only = true;
  return {std::move(request), std::make_unique<openai::InputTokensEncoder>()};
}

}  // namespace

GenerationJob MakeResponsesJob(openai::ResponsesRequest parsed, const api::ModelDefaults& defaults) {
  openai::ResponseHead head{.id = api::RandomId("resp_"),
                            .message_id = api::RandomId("msg_"),
                            .model = parsed.model,
                            .created = std::chrono::system_clock::now(),
                            .stream = parsed.stream,
                            .instructions = parsed.instructions,
                            .max_output_tokens = parsed.options.num_predict,
                            .parallel_tool_calls = !parsed.tools.single_call,
                            .text_json = std::move(parsed.text_json),
                            .tools_json = std::move(parsed.tools_json),
                            .tool_choice_json = std::move(parsed.tool_choice_json),
                            .special_tools = std::move(parsed.special_tools),
                            .truncates = parsed.truncates,
                            .hide_thinking = parsed.rendering.hide_thinking};
  api::Request request = openai::ToRequest(std::move(parsed), defaults);
  head.temperature = request.params.temperature;
  head.top_p = request.params.top_p;
  return {std::move(request), std::make_unique<openai::ResponsesEncoder>(std::move(head))};
}

void AddResponsesRoutes(Router& router, Services& services) {
  const auto respond = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, openai::ParseResponses, MakeResponsesJob);
  };
  const auto count = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, openai::ParseResponses, InputTokensJob);
  };
  router.Add({"POST", "/v1/responses", respond, true}, {"openai", "A response", "Responses", kJsonOrEvents});
  router.Add({"POST", "/v1/responses/input_tokens", count, true},
             {"openai", "Length of a prompt in tokens", "Responses"});
}

}  // namespace quire::server
