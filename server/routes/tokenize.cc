#include "api/llama_server/tokenize.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "api/json/option_fields.h"
#include "api/llama_server/completion.h"
#include "api/llama_server/props.h"
#include "api/openai/chat.h"
#include "server/http/party.h"
#include "server/routes/handlers.h"
#include "server/routes/private_paths.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

using Shape = api::TokenizeEncoder::Shape;
using Encoder = std::unique_ptr<api::TokenizeEncoder>;

// The model that is named, else the only one that is loaded or stored. Null: the request was answered with
// the error.
Awaitable<SharedModel> FindNamedOrOnly(Services& services, Exchange& exchange, std::string name) {
  if (name.empty()) {
    const auto loaded = services.backend.Loaded();
    if (loaded.size() == 1) {
      name = loaded.front().spec.name;
    } else {
      const bool named = co_await NameModel(services, exchange, name);
      if (!named) co_return nullptr;
    }
  }
  co_return co_await FindModel(services, exchange, name);
}

Awaitable<Encoder> EncoderOf(Services& services, Exchange& exchange, const api::TokenizeRequest& request,
                             const StoredModel& model) {
  if (!request.counts)
    co_return std::make_unique<api::TokenizeEncoder>(request.with_pieces ? Shape::kPieces : Shape::kIds);
  const int32_t num_ctx = co_await services.inspector.DefaultContext(model, PartyOf(exchange));
  co_return std::make_unique<api::TokenizeEncoder>(Shape::kCounted, request.with_pieces, num_ctx);
}
Awaitable<Encoder> EncoderOf(Services&, Exchange&, const api::DetokenizeRequest&, const StoredModel&) {
  co_return std::make_unique<api::TokenizeEncoder>(Shape::kText);
}
Awaitable<Encoder> EncoderOf(Services&, Exchange&, const api::TemplateRequest&, const StoredModel&) {
  co_return std::make_unique<api::TokenizeEncoder>(Shape::kPrompt);
}

GenerationJob JobOf(api::TokenizeRequest parsed, const api::ModelDefaults& defaults) {
  return {api::ToRequest(std::move(parsed), defaults), nullptr};
}
GenerationJob JobOf(api::DetokenizeRequest parsed, const api::ModelDefaults&) {
  return {api::ToRequest(std::move(parsed)), nullptr};
}
GenerationJob JobOf(api::TemplateRequest parsed, const api::ModelDefaults& defaults) {
  return {api::ToRequest(std::move(parsed), defaults), nullptr};
}

// The messages of a request that a template is applied to; null: there are none.
api::openai::ChatRequest* ChatOf(api::TokenizeRequest& request) {
  return request.chat ? &request.chat->chat : nullptr;
}
api::openai::ChatRequest* ChatOf(api::TemplateRequest& request) { return &request.chat; }
api::openai::ChatRequest* ChatOf(api::DetokenizeRequest&) { return nullptr; }

template <class Parsed>
Awaitable<void> Convert(Services& services, Exchange& exchange,
                        api::Result<Parsed> (*parse)(std::string_view)) {
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  exchange.log().model = parsed->model;
  const auto model = co_await FindNamedOrOnly(services, exchange, parsed->model);
  if (!model) co_return;
  if (api::openai::ChatRequest* chat = ChatOf(*parsed)) {
    const bool settled = co_await SettleImages(services, exchange, *model, *chat);
    if (!settled) co_return;
  }
  Encoder reply = co_await EncoderOf(services, exchange, *parsed, *model);
  auto job = co_await MakeJob<Parsed>(services, exchange, *model, *parsed, &JobOf);
  if (!job) co_return;
  job->reply = std::move(reply);
  co_await RelayJob(services, exchange, model, std::nullopt, *std::move(job));
}

std::string ModelOfQuery(std::string_view query) {
  constexpr std::string_view kKey = "model=";
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    std::string name;
    if (pair.starts_with(kKey) && PercentDecode(pair.substr(kKey.size()), name)) return name;
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
  }
  return {};
}

// As of a request that specifies nothing.
void SetSampling(const api::ipc::Inspected& description, const StoredModel& model, api::ModelProps& props) {
  props.params = Resolve(Overlay(api::llama_server::DefaultOptions(), model.parameters));
  const auto recommended =
      api::ParseOptions(description.sampling_json.empty() ? "{}" : description.sampling_json);
  if (recommended) Apply(Without(recommended->options, Specified(model.parameters)), props.params);
  props.sampling_json =
      api::SamplingSources(description.sampling_json, description.sampling_source, model.parameters_json);
}

// Null: it could not be described, and the client knows.
Awaitable<Inspector::Description> DescribeOrSendError(Services& services, Exchange& exchange,
                                                      const StoredModel& model) {
  auto description = co_await services.inspector.Describe(model, /*verbose=*/false, PartyOf(exchange));
  if (description) co_return *std::move(description);
  co_await SendError(exchange, description.error());
  co_return nullptr;
}

// For the model that ?model= names, else for the only loaded one.
Awaitable<void> Props(Services& services, Exchange& exchange) {
  const auto model = co_await FindNamedOrOnly(services, exchange, ModelOfQuery(exchange.request().query));
  if (!model) co_return;
  const Inspector::Description description = co_await DescribeOrSendError(services, exchange, *model);
  if (!description) co_return;
  const std::string go_template(model->TemplateInUse());
  api::ModelProps props{.model = model->name.Display(),
                        .path = PathShownTo(exchange.request().admin, model->weights),
                        .chat_template = go_template.empty() ? description->chat_template : go_template};
  props.sees_images =
      std::ranges::find(description->capabilities, "vision") != description->capabilities.end();
  props.num_ctx = co_await services.inspector.DefaultContext(*model, PartyOf(exchange));
  SetSampling(*description, *model, props);
  for (const scheduler::LoadedModel& loaded : services.backend.Loaded()) {
    if (loaded.spec.key != model->digest) continue;
    props.num_ctx = ContextShownTo(exchange.request().admin, loaded);
    props.slots = loaded.running + 1;  // as /slots lists them
  }
  HttpResponse response{.body = api::EncodeProps(props, QUIRE_VERSION)};
  co_await exchange.Send(std::move(response));
}

// For the model that ?model= names, likewise.
Awaitable<void> TokenizerInfo(Services& services, Exchange& exchange) {
  const auto model = co_await FindNamedOrOnly(services, exchange, ModelOfQuery(exchange.request().query));
  if (!model) co_return;
  const Inspector::Description description = co_await DescribeOrSendError(services, exchange, *model);
  if (!description) co_return;
  const int32_t num_ctx = co_await services.inspector.DefaultContext(*model, PartyOf(exchange));
  HttpResponse response{
      .body = api::EncodeTokenizerInfo(description->tokenizer_json, description->chat_template, num_ctx)};
  co_await exchange.Send(std::move(response));
}

// A slot for each request in flight, and a free one of every loaded model: there is no fixed number of them.
Awaitable<void> Slots(Services& services, Exchange& exchange) {
  const bool admin = exchange.request().admin;
  std::vector<api::SlotEntry> slots;
  for (const scheduler::LoadedModel& loaded : services.backend.Loaded()) {
    for (int32_t i = 0; i <= loaded.running; ++i) {
      slots.push_back({.model = NameShownTo(admin, loaded),
                       .num_ctx = ContextShownTo(admin, loaded),
                       .is_processing = i < loaded.running});
    }
  }
  HttpResponse response{.body = api::EncodeSlots(slots)};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddTokenizeRoutes(Router& router, Services& services) {
  const auto tokenize = [&services](Exchange& exchange) {
    return Convert(services, exchange, api::ParseTokenize);
  };
  const auto detokenize = [&services](Exchange& exchange) {
    return Convert(services, exchange, api::ParseDetokenize);
  };
  router.Add({"POST", "/tokenize", tokenize, true}, {"llama.cpp", "Token ids of a text", "Tokenize"});
  router.Add({"POST", "/detokenize", detokenize, true}, {"llama.cpp", "Text of token ids", "Detokenize"});
  router.Add(
      {"POST", "/apply-template",
       [&services](Exchange& exchange) { return Convert(services, exchange, api::ParseApplyTemplate); },
       true},
      {"llama.cpp", "The prompt that a conversation becomes", "Chat"});
  router.Add({"GET", "/props", [&services](Exchange& exchange) { return Props(services, exchange); }},
             {.tag = "llama.cpp",
              .summary = "The loaded model and its default parameters",
              .parameters = {"model_query"}});
  router.Add({"GET", "/tokenizer_info",
              [&services](Exchange& exchange) { return TokenizerInfo(services, exchange); }},
             {.tag = "vllm",
              .summary = "The special tokens, the template and the context, as vLLM names them",
              .parameters = {"model_query"}});
  router.Add({"GET", "/slots", [&services](Exchange& exchange) { return Slots(services, exchange); }},
             {"llama.cpp", "Requests in flight"});
}

}  // namespace quire::server
