#include "api/openai/rerank.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "server/http/party.h"
#include "server/routes/blocking.h"
#include "server/routes/embed.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

Awaitable<api::Result<api::RerankRequest>> ParseRerankBody(Services& services, Exchange& exchange,
                                                           api::RerankDialect dialect) {
  auto work = [dialect, &body = exchange.request().body] { return api::ParseRerank(dialect, body); };
  auto parsed = co_await ParseTexts(services, exchange, std::move(work));
  co_return parsed;
}

// On the pool where the documents are many, or may be repeated and are long.
Awaitable<std::string> Encode(Services& services, Exchange& exchange, const api::RerankRequest& request,
                              const api::EmbedResult& result, int64_t created) {
  constexpr size_t kManyDocuments = 256;
  const bool long_ones = request.return_documents && exchange.body_bytes() > kLargeBodyBytes;
  if (result.vectors.size() <= kManyDocuments && !long_ones) {
    co_return api::EncodeRerank(request, result, created);
  }
  auto work = [&] { return api::EncodeRerank(request, result, created); };
  auto body = co_await RunFor(exchange, services.pools.cpu, std::move(work));
  co_return body;
}

Awaitable<void> Rerank(Services& services, Exchange& exchange, api::RerankDialect dialect) {
  auto request = co_await ParseRerankBody(services, exchange, dialect);
  if (!request) {
    co_await SendError(exchange, request.error());
    co_return;
  }
  const bool named = co_await NameModel(services, exchange, request->pairs.model, "rerank");
  if (!named) co_return;
  LogUnknownOptions(exchange, request->pairs.unknown_options);
  const auto model = co_await services.models.Find(request->pairs.model, PartyOf(exchange));
  if (!model) {
    co_await SendError(exchange, model.error());
    co_return;
  }
  const size_t repeated = request->return_documents ? exchange.body_bytes() : 0;
  auto result = co_await EmbedAll(services, exchange, *model, request->pairs, repeated);
  if (!result) {
    co_await SendError(exchange, result.error());
    co_return;
  }
  exchange.log().finish = "rerank";
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  HttpResponse response;
  response.body = co_await Encode(services, exchange, *request, *result, created);
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddRerankRoutes(Router& router, Services& services) {
  const auto add = [&](const char* path, api::RerankDialect dialect, Operation operation) {
    router.Add(
        {"POST", path,
         [&services, dialect](Exchange& exchange) { return Rerank(services, exchange, dialect); }, true},
        std::move(operation));
  };
  using enum api::RerankDialect;
  add("/v1/rerank", kJina, {"openai", "Documents by their relevance to a query", "Rerank"});
  for (const char* path : {"/rerank", "/v1/reranking", "/reranking"}) {
    add(path, kJina, {"openai", "As /v1/rerank", "Rerank"});
  }
  add("/v2/rerank", kCohere, {"cohere", "As /v1/rerank, in the shape of Cohere", "CohereRerank"});
  add("/v1/score", kScore, {"openai", "Scores of pairs of texts", "Score"});
  add("/score", kScore, {"openai", "As /v1/score", "Score"});
}

}  // namespace quire::server
