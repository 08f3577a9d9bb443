#include <utility>

#include "api/base/random_id.h"
#include "api/openai/chat.h"
#include "api/openai/completions.h"
#include "server/routes/choices_reply.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace openai = api::openai;

constexpr std::string_view kModelPath = "/v1/models/";

template <class Encoder>
class OpenAiReply : public ChoicesReply {
 public:
  OpenAiReply(bool stream, Encoder encoder) : stream_(stream), encoder_(std::move(encoder)) {}

  bool streams() const override { return stream_; }
  std::string_view stream_type() const override { return "text/event-stream"; }
  std::string_view keep_alive() const override { return ": waiting\n\n"; }
  std::string OnEvent(size_t choice, const api::Event& event, const ReplyTiming&) override {
    return encoder_.OnEvent(choice, event);
  }

 private:
  bool stream_;
  Encoder encoder_;
};

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
          .choices_per_prompt = n};
}

OpenAiReply<openai::ChatEncoder> ReplyTo(const openai::ChatRequest& request) {
  return {request.stream, openai::ChatEncoder(HeadOf(request, "chatcmpl-", 1))};
}

OpenAiReply<openai::CompletionEncoder> ReplyTo(const openai::CompletionRequest& request) {
  return {request.stream, openai::CompletionEncoder(HeadOf(request, "cmpl-", request.prompts.size()),
                                                    openai::EchoesOf(request))};
}

std::vector<api::Request> RequestsOf(openai::ChatRequest request, const api::ModelDefaults& defaults) {
  const int32_t n = request.n;
  return openai::ToChoices(openai::ToRequest(std::move(request), defaults), n);
}

std::vector<api::Request> RequestsOf(openai::CompletionRequest request, const api::ModelDefaults& defaults) {
  return openai::ToRequests(std::move(request), defaults);
}

template <class Parsed>
Awaitable<void> Complete(Services& services, Exchange& exchange,
                         api::Result<Parsed> (*parse)(std::string_view)) {
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  exchange.log().model = parsed->model;
  LogUnknownOptions(exchange, parsed->unknown_options);
  auto model = co_await FindModelToAnswer(services, exchange, parsed->model);
  if (!model) co_return;
  auto reply = ReplyTo(*parsed);
  const auto keep_alive = parsed->keep_alive;
  std::vector<GenerationJob> jobs;
  for (api::Request& request : RequestsOf(*std::move(parsed), TakeDefaults(*model))) {
    SetTenant(exchange.request(), request.client);
    jobs.push_back({SpecOf(*model), std::move(request), keep_alive});
  }
  co_await SendChoices(exchange, services.backend, std::move(jobs), reply);
}

openai::ModelEntry EntryOf(const StoredModel& model) {
  return {.id = model.name.Display(), .created = model.modified_at};
}

Awaitable<void> ListModels(Services& services, Exchange& exchange) {
  const auto models = co_await services.models.List();
  if (!models) {
    co_await SendError(exchange, models.error());
    co_return;
  }
  std::vector<openai::ModelEntry> entries;
  for (const StoredModel& model : *models) entries.push_back(EntryOf(model));
  HttpResponse response{.body = openai::EncodeModels(entries)};
  co_await exchange.Send(std::move(response));
}

Awaitable<void> ShowModel(Services& services, Exchange& exchange) {
  const std::string name = exchange.request().path.substr(kModelPath.size());
  const auto model = co_await services.models.Find(name);
  if (!model) {
    co_await SendError(exchange, model.error());
    co_return;
  }
  openai::ModelEntry entry = EntryOf(*model);
  entry.id = name;
  HttpResponse response{.body = openai::EncodeModel(entry)};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddOpenAiRoutes(Router& router, Services& services) {
  router.Add({"POST", "/v1/chat/completions",
              [&services](Exchange& exchange) { return Complete(services, exchange, openai::ParseChat); },
              true});
  router.Add(
      {"POST", "/v1/completions",
       [&services](Exchange& exchange) { return Complete(services, exchange, openai::ParseCompletion); },
       true});
  router.Add(
      {"GET", "/v1/models", [&services](Exchange& exchange) { return ListModels(services, exchange); }});
  router.Add({"GET", std::string(kModelPath),
              [&services](Exchange& exchange) { return ShowModel(services, exchange); }});
}

}  // namespace quire::server
