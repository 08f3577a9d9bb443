#include "server/routes/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "api/openai/embedding.h"
#include "server/routes/blocking.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"
#include "server/routes/vector_cache.h"

namespace quire::server {
namespace {

// Texts of one request that its runner has at once: enough to fill its batches, few enough to leave the queue
// to others.
constexpr size_t kAtOnceMax = 32;
// A reply of more numbers is written out on the pool, and one that may repeat many texts.
constexpr size_t kLargeReplyNumbers = size_t{1} << 16;

// A text on its way.
struct TextJob {
  size_t index = 0;  // of the request's inputs
  std::unique_ptr<scheduler::TokenStream> stream;
};

// The runner knows one text only: says which of the request's it was.
api::Error OfInput(api::Error error, const api::EmbedRequest& request, size_t i) {
  const bool cohere =
      request.dialect == api::EmbedDialect::kCohere || request.dialect == api::EmbedDialect::kCohereOld;
  if (cohere && error.field == "dimensions") {
    error.field = "output_dimension";
    error.message = "output_dimension: larger than the vectors of this model";
    return error;
  }
  constexpr std::string_view kPrefix = "input_type";
  if (request.dialect == api::EmbedDialect::kTei && error.field == kPrefix) {
    error.field = "prompt_name";
    if (error.message.starts_with(kPrefix)) error.message.replace(0, kPrefix.size(), error.field);
    return error;
  }
  const bool about_text = error.field == "input" || error.code == api::ErrorCode::kContextLengthExceeded;
  if (!about_text) return error;
  error.field = request.NameOf(i);
  if (!request.one_text) error.message = fmt::format("{}: {}", error.field, error.message);
  return error;
}

void RecordEmbedEvent(RequestLog& log, const api::Event& event) {
  const auto* finished = std::get_if<api::Finished>(&event);
  if (finished == nullptr) return;
  log.prompt_tokens = log.prompt_tokens.value_or(0) + finished->usage.prompt_tokens;
  log.cached_tokens = log.cached_tokens.value_or(0) + finished->usage.cached_tokens;
}

// The texts' keys in the vector cache. Many, or long ones, are hashed on the pool.
Awaitable<std::vector<std::string>> HashTexts(Services& services, Exchange& exchange,
                                              const StoredModel& model, const api::EmbedRequest& request) {
  constexpr size_t kManyTexts = 64;
  std::vector<std::string> keys(request.inputs.size());
  if (services.vectors == nullptr) co_return keys;
  api::Request common = request.Common(model.parameters);
  common.client.tenant = TenantOf(exchange.request());
  auto work = [&keys, &model, &request, &common] {
    const VectorKeys key_maker(model.digest, common, request.shared);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = key_maker.KeyOf(request.inputs[i]);
    return true;
  };
  if (keys.size() <= kManyTexts && !IsLargeBody(exchange.request().body)) {
    work();
  } else {
    co_await RunFor(exchange, services.pools.cpu, std::move(work));
  }
  co_return keys;
}

// Lets other clients' work run, once in a while.
Awaitable<void> Yield(size_t found) {
  constexpr size_t kAtOnce = 32;
  if (found % kAtOnce != 0) co_return;
  const auto executor = co_await boost::asio::this_coro::executor;
  co_await boost::asio::post(executor, boost::asio::use_awaitable);
}

// The end of one text's work.
Awaitable<api::Result<api::Finished>> Finish(scheduler::TokenStream& stream, RequestLog& log) {
  while (true) {
    api::Event event = co_await stream.Next();
    RecordEmbedEvent(log, event);
    log.runner_pid = stream.runner_pid();
    if (auto* failed = std::get_if<api::Failed>(&event)) co_return std::unexpected(std::move(failed->error));
    if (auto* finished = std::get_if<api::Finished>(&event)) co_return std::move(*finished);
  }
}

}  // namespace

Awaitable<api::Result<api::EmbedResult>> EmbedAll(Services& services, Exchange& exchange,
                                                  const StoredModel& model,
                                                  const api::EmbedRequest& request) {
  api::EmbedResult result;
  std::deque<TextJob> running;
  api::Client client;
  SetClient(exchange, client);
  const size_t count = request.inputs.size();
  size_t at_once = kAtOnceMax;
  // A request that says how long the model stays wants it loaded.
  const bool looks_up = services.vectors != nullptr && !request.keep_alive;
  result.vectors.resize(count);
  const auto keys = co_await HashTexts(services, exchange, model, request);
  size_t found = 0;
  for (size_t submitted = 0; submitted < count || !running.empty();) {
    while (submitted < count && running.size() < at_once) {
      if (auto known = looks_up ? services.vectors->Find(keys[submitted]) : std::nullopt) {
        result.prompt_tokens += known->prompt_tokens;
        exchange.log().prompt_tokens = exchange.log().prompt_tokens.value_or(0) + known->prompt_tokens;
        exchange.log().cached_tokens = exchange.log().cached_tokens.value_or(0) + known->prompt_tokens;
        result.vectors[submitted] = std::move(known->vector);
        ++submitted;
        co_await Yield(++found);
        continue;
      }
      api::Request one = request.At(submitted, model.parameters);
      one.client.tenant = client.tenant;
      one.client.weight = client.weight;
      one.client.address = client.address;
      TextJob job{.index = submitted, .stream = nullptr};
      auto placed = co_await services.backend.Submit(SpecOf(model), std::move(one), request.keep_alive);
      // Texts of requests like this one may be what fills the queue: it goes on with fewer, so that all of them leave
      // room for others.
      if (!placed && placed.error().code == api::ErrorCode::kOverloaded && !running.empty()) {
        at_once = std::max<size_t>(1, running.size() / 2);
        break;
      }
      if (!placed) co_return std::unexpected(std::move(placed).error());
      ++submitted;
      result.load = std::max(result.load, (*placed)->load_duration());
      job.stream = *std::move(placed);
      running.push_back(std::move(job));
    }
    if (running.empty()) break;
    const TextJob& first = running.front();
    auto finished = co_await Finish(*first.stream, exchange.log());
    if (!finished) co_return std::unexpected(OfInput(finished.error(), request, first.index));
    result.prompt_tokens += finished->usage.prompt_tokens;
    if (services.vectors != nullptr) {
      services.vectors->Store(keys[first.index], {finished->embedding, finished->usage.prompt_tokens});
    }
    result.vectors[first.index] = std::move(finished->embedding);
    running.pop_front();
  }
  co_return result;
}

namespace {

// A request without a text only loads the model.
Awaitable<api::Result<api::EmbedResult>> EmbedOrLoad(Services& services, Exchange& exchange,
                                                     const StoredModel& model,
                                                     const api::EmbedRequest& request) {
  if (!request.inputs.empty()) {
    auto result = co_await EmbedAll(services, exchange, model, request);
    co_return result;
  }
  const auto loaded =
      co_await services.backend.Load(SpecOf(model), request.keep_alive, QueuePartyOf(exchange));
  if (!loaded) co_return std::unexpected(loaded.error());
  co_return api::EmbedResult{.vectors = {}, .load = *loaded};
}

Awaitable<api::Result<api::EmbedRequest>> Parse(Services& services, Exchange& exchange,
                                                api::EmbedDialect dialect) {
  const std::string& body = exchange.request().body;
  WorkPool* const pool = PoolFor(services, body.size());
  if (pool == nullptr) co_return api::ParseEmbed(dialect, body);
  auto work = [dialect, &body] { return api::ParseEmbed(dialect, body); };
  auto parsed = co_await RunFor(exchange, *pool, std::move(work));
  co_return parsed;
}

Awaitable<void> Embed(Services& services, Exchange& exchange, api::EmbedDialect dialect) {
  auto request = co_await Parse(services, exchange, dialect);
  if (!request) {
    co_await SendError(exchange, request.error());
    co_return;
  }
  const bool named = co_await NameModel(services, exchange, request->model);
  if (!named) co_return;
  LogUnknownOptions(exchange, request->unknown_options);
  const auto model = co_await services.models.Find(request->model);
  if (!model) {
    co_await SendError(exchange, model.error());
    co_return;
  }
  auto result = co_await EmbedOrLoad(services, exchange, *model, *request);
  if (!result) {
    co_await SendError(exchange, result.error());
    co_return;
  }
  exchange.log().finish = "embed";
  result->total = ContextOf(exchange.log(), result->load).total;
  HttpResponse response;
  const size_t width = result->vectors.empty() ? 0 : result->vectors.front().size();
  if (width * result->vectors.size() > kLargeReplyNumbers || IsLargeBody(exchange.request().body)) {
    auto work = [&request, &result] { return api::EncodeEmbed(*request, *result); };
    response.body = co_await RunFor(exchange, services.pools.cpu, std::move(work));
  } else {
    response.body = api::EncodeEmbed(*request, *result);
  }
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddEmbeddingRoutes(Router& router, Services& services) {
  const auto add = [&](const char* path, api::EmbedDialect dialect) {
    router.Add({"POST", path,
                [&services, dialect](Exchange& exchange) { return Embed(services, exchange, dialect); },
                true});
  };
  add("/api/embed", api::EmbedDialect::kOllama);
  add("/api/embeddings", api::EmbedDialect::kOllamaLegacy);
  add("/v1/embeddings", api::EmbedDialect::kOpenAi);
  add("/v1/embed", api::EmbedDialect::kCohereOld);
  add("/v2/embed", api::EmbedDialect::kCohere);
  add("/embed", api::EmbedDialect::kTei);
  add("/embedding", api::EmbedDialect::kLlamaServer);
  add("/embeddings", api::EmbedDialect::kLlamaServer);
}

}  // namespace quire::server
