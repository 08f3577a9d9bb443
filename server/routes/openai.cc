#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/anthropic/messages.h"
#include "api/base/random_id.h"
#include "api/openai/chat.h"
#include "api/openai/cohere_chat.h"
#include "api/openai/completions.h"
#include "server/http/party.h"
#include "server/routes/handlers.h"
#include "server/routes/openai_jobs.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace anthropic = api::anthropic;
namespace openai = api::openai;

constexpr std::string_view kModelPath = "/v1/models/";

template <class Parsed>
openai::ReplyHead HeadOf(const Parsed& request, std::string_view prefix, size_t prompts) {
  const auto n = static_cast<size_t>(request.n);
  return {.id = api::RandomId(prefix),
          .model = request.model,
          .created = std::chrono::system_clock::now(),
          .stream = request.stream,
          .include_usage = request.include_usage,
          .chunk_per_token = request.chunk_per_token,
          .choices = prompts * n,
          .choices_per_prompt = n,
          .timings = request.timings_per_token,
          .timings_per_token = request.timings_per_token,
          .return_progress = request.return_progress,
          .prompt_logprobs = request.prompt_logprobs};
}

GenerationJob ChatJob(openai::ChatRequest parsed, const api::ModelDefaults& defaults) {
  return MakeChatJob(std::move(parsed), defaults, /*timings=*/false);
}

GenerationJob CompletionJob(openai::CompletionRequest parsed, const api::ModelDefaults& defaults) {
  auto reply = std::make_unique<openai::CompletionEncoder>(HeadOf(parsed, "cmpl-", parsed.prompts.size()),
                                                           openai::EchoesOf(parsed));
  return {openai::ToRequests(std::move(parsed), defaults), std::move(reply)};
}

// As Mistral's API has it: a completion in the shape of a chat.
GenerationJob FimJob(openai::CompletionRequest parsed, const api::ModelDefaults& defaults) {
  auto reply = std::make_unique<openai::ChatEncoder>(HeadOf(parsed, "fim-", parsed.prompts.size()));
  return {openai::ToRequests(std::move(parsed), defaults), std::move(reply)};
}

GenerationJob CohereChatJob(openai::ChatRequest parsed, const api::ModelDefaults& defaults) {
  auto reply = std::make_unique<openai::CohereChatEncoder>(api::RandomId("chat-"), parsed.stream);
  return {openai::ToRequest(std::move(parsed), defaults, openai::CohereOptions()), std::move(reply)};
}

Awaitable<openai::ModelEntry> EntryOf(Services& services, Exchange& exchange, const StoredModel& model) {
  const int32_t context_length = co_await services.inspector.DefaultContext(model, PartyOf(exchange));
  auto capabilities = co_await services.inspector.Capabilities(model, PartyOf(exchange));
  co_return openai::ModelEntry{.id = model.name.Display(),
                               .created = model.modified_at,
                               .context_length = context_length,
                               .capabilities = std::move(capabilities)};
}

Awaitable<anthropic::ModelEntry> AnthropicEntryOf(Services& services, Exchange& exchange,
                                                  const StoredModel& model) {
  const openai::ModelEntry entry = co_await EntryOf(services, exchange, model);
  const auto can = [&entry](const char* capability) {
    return std::ranges::find(entry.capabilities, capability) != entry.capabilities.end();
  };
  co_return anthropic::ModelEntry{.id = entry.id,
                                  .created = entry.created,
                                  .context_length = entry.context_length,
                                  .thinks = can("thinking"),
                                  .sees_images = can("vision")};
}

Awaitable<void> ListModels(Services& services, Exchange& exchange) {
  if (exchange.request().Find("anthropic-version") != nullptr) {
    co_await SendModels(services, exchange, AnthropicEntryOf, anthropic::EncodeModels);
  } else {
    co_await SendModels(services, exchange, EntryOf, openai::EncodeModels);
  }
}

Awaitable<void> ShowModel(Services& services, Exchange& exchange) {
  const std::string name = exchange.request().path.substr(kModelPath.size());
  const auto model = co_await services.models.Find(name, PartyOf(exchange));
  if (!model) {
    co_await SendError(exchange, model.error());
    co_return;
  }
  openai::ModelEntry entry = co_await EntryOf(services, exchange, **model);
  entry.id = name;
  HttpResponse response{.body = openai::EncodeModel(entry)};
  co_await exchange.Send(std::move(response));
}

}  // namespace

GenerationJob MakeChatJob(openai::ChatRequest parsed, const api::ModelDefaults& defaults, bool timings) {
  openai::ReplyHead head = HeadOf(parsed, "chatcmpl-", 1);
  head.timings = head.timings || timings;
  head.hide_thinking = parsed.rendering.hide_thinking;
  auto reply = std::make_unique<openai::ChatEncoder>(std::move(head));
  const int32_t n = parsed.n;
  std::vector<api::Request> choices = openai::ToChoices(openai::ToRequest(std::move(parsed), defaults), n);
  for (size_t i = 1; i < choices.size(); ++i) choices[i].prompt_logprobs = -1;
  return {std::move(choices), std::move(reply)};
}

void AddOpenAiRoutes(Router& router, Services& services) {
  const auto chat = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, openai::ParseChat, ChatJob);
  };
  const auto complete = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, openai::ParseCompletion, CompletionJob);
  };
  router.Add({"POST", "/v1/chat/completions", chat, true},
             {"openai", "Next message of a conversation", "Chat", kJsonOrEvents});
  const auto cohere = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, openai::ParseCohereChat, CohereChatJob);
  };
  router.Add({"POST", "/v2/chat", cohere, true},
             {"cohere", "A chat in the shape of Cohere", "CohereChat", kJsonOrEvents});
  const auto fill = [&services](Exchange& exchange) {
    return AnswerRequest(services, exchange, openai::ParseCompletion, FimJob);
  };
  router.Add({"POST", "/v1/completions", complete, true},
             {"openai", "Continuation of a prompt", "Completion", kJsonOrEvents});
  router.Add(
      {"POST", "/v1/fim/completions", fill, true},
      {"openai", "A completion in the shape of a chat, as in Mistral's API", "Completion", kJsonOrEvents});
  const auto list = [&services](Exchange& exchange) { return ListModels(services, exchange); };
  router.Add({"GET", "/v1/models", list}, {"openai", "Stored models"});
  router.Add({"GET", "/models", list}, {"llama.cpp", "As /v1/models"});
  router.Add({"GET", std::string(kModelPath) + "{model}",
              [&services](Exchange& exchange) { return ShowModel(services, exchange); }},
             {.tag = "openai", .summary = "One stored model", .parameters = {"model"}});
}

}  // namespace quire::server
