#include <memory>
#include <optional>
#include <utility>

#include "api/ollama/chat.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace ollama = api::ollama;

bool IsLoadOnly(const ollama::GenerateRequest& request) {
  return request.prompt.empty() && request.suffix.empty() && request.images.empty();
}
bool IsLoadOnly(const ollama::ChatRequest& request) { return request.messages.empty(); }

template <ollama::Endpoint kEndpoint, class Parsed>
GenerationJob MakeAnswerJob(Parsed parsed, const api::ModelDefaults& defaults) {
  auto reply =
      std::make_unique<ollama::ChatEncoder>(kEndpoint, parsed.model, parsed.stream, parsed.return_progress);
  return {ollama::ToRequest(std::move(parsed), defaults), std::move(reply)};
}

// A request without a prompt loads the model, or, when it asks to be kept for no time, ends the claim of its
// client: who may unload it for all does.
Awaitable<void> LoadOrUnload(Services& services, Exchange& exchange, ollama::Endpoint endpoint,
                             SharedModel model, ollama::CommonRequest request) {
  const bool unload = request.keep_alive == std::chrono::nanoseconds::zero();
  std::chrono::nanoseconds load{};
  const auto claim = ClaimOf(exchange, request.keep_alive);
  if (unload && MayUnloadForAll(exchange)) {
    services.backend.Unload(model->digest);
  } else if (unload) {
    services.backend.EndClaim(model->digest, PartyOf(exchange));
  } else {
    const auto loaded = co_await services.backend.Load(SpecOf(model), claim, PartyOf(exchange));
    if (!loaded) {
      co_await SendError(exchange, loaded.error());
      co_return;
    }
    load = *loaded;
  }
  exchange.log().finish = unload ? "unload" : "load";
  const api::EventContext context = ContextOf(exchange.log(), load);
  HttpResponse response{.body = ollama::LoadReply(endpoint, request.model, unload, context)};
  co_await exchange.Send(std::move(response));
}

template <ollama::Endpoint kEndpoint, class Parsed>
Awaitable<void> Answer(Services& services, Exchange& exchange,
                       api::Result<Parsed> (*parse)(std::string_view)) {
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  exchange.log().model = parsed->model;
  LogUnknownOptions(exchange, parsed->unknown_options);
  const bool load_only = IsLoadOnly(*parsed);
  SharedModel model;
  if (load_only) {
    model = co_await FindModel(services, exchange, parsed->model);
  } else {
    model = co_await FindModelToAnswer(services, exchange, parsed->model);
  }
  if (!model) co_return;
  if (load_only) {
    co_await LoadOrUnload(services, exchange, kEndpoint, std::move(model), *std::move(parsed));
    co_return;
  }
  const auto keep_alive = parsed->keep_alive;
  auto job = co_await MakeJob(services, exchange, *model, *parsed, MakeAnswerJob<kEndpoint, Parsed>);
  if (!job) co_return;
  co_await RelayJob(services, exchange, model, keep_alive, *std::move(job));
}

}  // namespace

void AddOllamaRoutes(Router& router, Services& services) {
  const auto generate = [&services](Exchange& exchange) {
    return Answer<ollama::Endpoint::kGenerate>(services, exchange, ollama::ParseGenerate);
  };
  const auto chat = [&services](Exchange& exchange) {
    return Answer<ollama::Endpoint::kChat>(services, exchange, ollama::ParseChat);
  };
  router.Add({"POST", "/api/generate", generate, true},
             {"ollama", "Answer to a prompt", "OllamaGenerate", kJsonOrLines});
  router.Add({"POST", "/api/chat", chat, true},
             {"ollama", "Next message of a conversation", "OllamaChat", kJsonOrLines});
}

}  // namespace quire::server
