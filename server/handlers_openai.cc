#include <fmt/format.h>

#include <random>
#include <utility>

#include "api/openai.h"
#include "server/blocking.h"
#include "server/handlers.h"

namespace quire::server {
namespace {

namespace openai = api::openai;

constexpr std::string_view kModelPath = "/v1/models/";

std::string NewCompletionId() {
  static std::mt19937_64 random{std::random_device{}()};
  const auto high = random();
  return fmt::format("chatcmpl-{:016x}{:016x}", high, random());
}

class OpenAiReply : public Reply {
 public:
  explicit OpenAiReply(const openai::ChatRequest& request)
      : stream_(request.stream),
        encoder_({.id = NewCompletionId(),
                  .model = request.model,
                  .created = std::chrono::system_clock::now(),
                  .stream = request.stream,
                  .include_usage = request.include_usage}) {}

  bool streams() const override { return stream_; }
  std::string_view stream_type() const override { return "text/event-stream"; }
  std::string_view keep_alive() const override { return ": waiting\n\n"; }
  std::string OnEvent(const api::Event& event, const Moment&) override { return encoder_.OnEvent(event); }

 private:
  bool stream_;
  openai::ChatEncoder encoder_;
};

Awaitable<void> ChatCompletions(Services& services, Exchange& exchange) {
  const std::string& body = exchange.request().body;
  api::Result<openai::ChatRequest> parsed = api::Fail(api::ErrorCode::kInternal, "");
  if (IsLargeBody(body)) {
    auto work = [&body] { return openai::ParseChat(body); };
    parsed = co_await RunBlocking(services.models.pool(), std::move(work));
  } else {
    parsed = openai::ParseChat(body);
  }
  if (!parsed) {
    co_await SendError(exchange, parsed.error());
    co_return;
  }
  exchange.log().model = parsed->model;
  LogUnknownOptions(exchange, parsed->unknown_options);
  auto model = co_await services.models.Find(parsed->model);
  if (!model) {
    co_await SendError(exchange, model.error());
    co_return;
  }
  OpenAiReply reply(*parsed);
  const api::ModelDefaults defaults{std::move(model->parameters), std::move(model->system),
                                    std::move(model->messages)};
  const auto keep_alive = parsed->keep_alive;
  Job job{SpecOf(*model), openai::ToRequest(*std::move(parsed), defaults), keep_alive};
  job.request.client.tenant = TenantOf(exchange.request());
  co_await Relay(exchange, services.backend, std::move(job), reply);
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
              [&services](Exchange& exchange) { return ChatCompletions(services, exchange); }, true});
  router.Add(
      {"GET", "/v1/models", [&services](Exchange& exchange) { return ListModels(services, exchange); }});
  router.Add({"GET", std::string(kModelPath),
              [&services](Exchange& exchange) { return ShowModel(services, exchange); }});
}

}  // namespace quire::server
