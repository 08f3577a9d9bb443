#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <ratio>

#include "api/base/sha256.h"
#include "api/json/read.h"
#include "server/http/awaitable.h"
#include "server/http/party.h"
#include "server/http/request_log.h"
#include "server/routes/embed.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;

constexpr size_t kLoggedNamesMax = 16;
constexpr size_t kTraceParentMax = 128;  // bytes
using RefusalTick = std::chrono::duration<int64_t, std::ratio<1, 500>>;

// Requests are refused in batches, on the ticks of one clock: each reply on its own would wake the I/O thread
// on a core that a runner needs.
Awaitable<void> WaitForRefusalTick() {
  using Clock = std::chrono::steady_clock;
  asio::steady_timer timer(co_await asio::this_coro::executor);
  timer.expires_at(std::chrono::ceil<RefusalTick>(Clock::now()));
  co_await timer.async_wait(kTuple);
}

}  // namespace

void AddRoutes(Router& router, Services& services) {
  AddOllamaRoutes(router, services);
  AddOllamaListRoutes(router, services);
  AddStoreRoutes(router, services);
  AddOpenAiRoutes(router, services);
  AddEmbeddingRoutes(router, services);
  AddRerankRoutes(router, services);
  AddResponsesRoutes(router, services);
  AddTokenizeRoutes(router, services);
  AddAnthropicRoutes(router, services);
  AddLlamaServerRoutes(router, services);
  AddHealthRoutes(router, services);
}

std::string TenantOf(const HttpRequest& request) {
  if (!request.identity.empty()) return api::Sha256Of("key:" + request.identity);
  const std::string* credential = request.Find("authorization");
  if (credential == nullptr) credential = request.Find("x-api-key");
  return credential == nullptr || credential->empty() ? std::string() : api::Sha256Of(*credential);
}

void SetClient(Exchange& exchange, api::Client& client) {
  client.tenant = TenantOf(exchange.request());
  client.party = PartyOf(exchange);
  client.has_key = !exchange.request().identity.empty();
  client.exchange = exchange.id();
}

bool MayUnloadForAll(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  return request.admin && (!request.identity.empty() || IsOfThisMachine(exchange.log().client));
}

std::optional<scheduler::KeepAliveClaim> ClaimOf(Exchange& exchange,
                                                 std::optional<scheduler::KeepAlive> keep_alive) {
  if (!keep_alive) return std::nullopt;
  const HttpRequest& request = exchange.request();
  return scheduler::KeepAliveClaim(*keep_alive, request.admin && !request.identity.empty());
}

void LogUnknownOptions(const Exchange& exchange, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kLoggedNamesMax); ++i) {
    list += (i > 0 ? "," : "") + LogValue(names[i]);
  }
  spdlog::info("id={} ignored_options={}", exchange.id(), list);
}

api::Result<uint64_t> ReserveParsing(Exchange& exchange) {
  const std::string& body = exchange.request().body;
  if (body.size() <= kLargeBodyBytes) return body.size();
  const api::JsonMemory memory = api::MeasureJson(body);
  if (auto full = ReserveRequest(exchange, memory.texts + 2 * memory.objects))
    return std::unexpected(*std::move(full));
  return memory.texts;
}

Awaitable<SharedModel> FindModel(Services& services, Exchange& exchange, const std::string& name) {
  auto model = co_await services.models.Find(name, PartyOf(exchange));
  if (!model) {
    co_await SendError(exchange, model.error());
    co_return nullptr;
  }
  exchange.log().stored_model = (*model)->name.Display();
  if (const std::string* parent = exchange.request().Find("traceparent"))
    exchange.log().trace_parent = parent->substr(0, kTraceParentMax);
  co_return *std::move(model);
}

namespace {

// The name of the only stored model of this capability, or of the only one of them that is loaded; else
// empty.
Awaitable<std::string> OnlyModelOf(Services& services, Exchange& exchange, std::string_view capability) {
  const auto stored = co_await services.models.List(PartyOf(exchange));
  if (!stored) co_return std::string();
  std::vector<const StoredModel*> able;
  for (const SharedModel& model : *stored) {
    const auto capabilities = co_await services.inspector.Capabilities(*model, PartyOf(exchange));
    if (std::ranges::find(capabilities, capability) != capabilities.end()) able.push_back(model.get());
  }
  if (able.size() > 1) {
    const auto loaded = services.backend.Loaded();
    std::erase_if(able, [&loaded](const StoredModel* model) {
      return std::ranges::none_of(loaded, [model](const auto& one) { return one.spec.key == model->digest; });
    });
  }
  co_return able.size() == 1 ? able.front()->name.Display() : std::string();
}

}  // namespace

Awaitable<bool> NameModel(Services& services, Exchange& exchange, std::string& name,
                          std::string_view capability) {
  if (name.empty() && !capability.empty()) name = co_await OnlyModelOf(services, exchange, capability);
  if (name.empty()) {
    const auto loaded = services.backend.Loaded();
    if (loaded.size() == 1) name = loaded.front().spec.name;
    if (loaded.empty()) {
      const auto stored = co_await services.models.List(PartyOf(exchange));
      if (stored && stored->size() == 1) name = stored->front()->name.Display();
    }
  }
  if (!name.empty()) {
    exchange.log().model = name;
    co_return true;
  }
  const api::Error error{
      api::ErrorCode::kInvalidArgument,
      "model is required unless exactly one model is loaded, or none is loaded and exactly one stored",
      "model"};
  co_await SendError(exchange, error);
  co_return false;
}

Awaitable<bool> NameModelToAnswer(Services& services, Exchange& exchange, std::string& name) {
  exchange.log().model = name;
  if (!name.empty() && name != kAnyModel) co_return true;
  if (!name.empty()) {
    const auto found = co_await services.models.Find(name, PartyOf(exchange));
    if (found) co_return true;
    name.clear();
  }
  const bool named = co_await NameModel(services, exchange, name, "completion");
  co_return named;
}

Awaitable<SharedModel> FindModelToAnswer(Services& services, Exchange& exchange, const std::string& name) {
  auto model = co_await FindModel(services, exchange, name);
  if (!model) co_return nullptr;
  const auto refuse = [&] { return services.backend.RefusalFor(model->digest, PartyOf(exchange)); };
  if (refuse()) co_await WaitForRefusalTick();
  if (const auto refusal = refuse()) {
    co_await SendError(exchange, *refusal);
    co_return nullptr;
  }
  co_return model;
}

Awaitable<bool> SettleImages(Services& services, Exchange& exchange, const StoredModel& model,
                             const api::ImageUse& use, std::vector<api::Message>& messages) {
  if (!use.any) co_return true;
  const auto sees = co_await services.inspector.Can(model, "vision", PartyOf(exchange));
  const auto settled = sees ? api::SettleImages(use, *sees, messages) : std::unexpected(sees.error());
  if (!settled) {
    co_await SendError(exchange, settled.error());
    co_return false;
  }
  if (!*sees) LogUnknownOptions(exchange, {"messages: image omitted"});
  co_return true;
}

api::ModelDefaults DefaultsOf(const StoredModel& model) {
  return {model.parameters, model.system, model.messages};
}

Awaitable<void> RelayJob(Services& services, Exchange& exchange, const SharedModel& model,
                         std::optional<scheduler::KeepAlive> keep_alive, GenerationJob job) {
  job.spec = SpecOf(model);
  job.keep_alive = ClaimOf(exchange, keep_alive);
  const int64_t now_s = std::time(nullptr);  // all choices have one prompt
  for (api::Request& request : job.choices) {
    SetClient(exchange, request.client);
    request.now_s = now_s;
  }
  if (job.memory_bytes == 0) job.memory_bytes = MemoryBytes(job.choices);
  if (const auto full = ReserveRequest(exchange, job.memory_bytes)) {
    co_await SendError(exchange, *full);
    co_return;
  }
  exchange.ShrinkRequest(job.memory_bytes);  // what it was parsed from is gone
  if (!job.choices.front().prompt_only) exchange.log().body_bytes = exchange.body_bytes();
  exchange.log().isolation = job.choices.front().client.IsolationKey();
  co_await RelayReply(exchange, services.backend, services.pools.cpu, std::move(job));
}

}  // namespace quire::server
