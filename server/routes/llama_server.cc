// The routes of llama.cpp's server that generate: its own, and those of OpenAI without /v1.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/base/parse_integer.h"
#include "api/llama_server/completion.h"
#include "api/llama_server/model_field.h"
#include "api/llama_server/slots.h"
#include "server/routes/handlers.h"
#include "server/routes/openai_jobs.h"
#include "server/routes/request_steps.h"
#include "server/routes/slot_store.h"

namespace quire::server {
namespace {

namespace llama_server = api::llama_server;
namespace openai = api::openai;

constexpr std::string_view kSlotPath = "/slots/";
constexpr uint64_t kSlotBodyBytesMax = uint64_t{64} << 10;
constexpr auto kFolderInterval = std::chrono::milliseconds(20);

using SlotStorePtr = std::shared_ptr<SlotStore>;

template <class Parsed>
int32_t SlotOf(const Parsed& request) {
  if constexpr (requires { request.slot; }) return request.slot;
  return 0;
}

// The slot remembers the prompt and the answer of its only choice. The answer's last token is not computed.
void RememberIn(const SlotStorePtr& slots, SlotOwner owner, fair::PartyId party, int32_t slot,
                GenerationJob& job) {
  if (job.choices.size() != 1) return;
  api::Request& request = job.choices.front();
  request.return_context = true;
  job.on_finished = [slots, owner = std::move(owner), party = std::move(party), slot,
                     salt = request.client.cache_salt,
                     num_ctx = request.params.num_ctx](const api::Finished& finished) {
    if (finished.context.size() < 2) return;
    slots->Record(owner, party, slot,
                  {{finished.context.begin(), finished.context.end() - 1}, salt, num_ctx});
  };
}

template <class Parsed>
Awaitable<void> AnswerForSlot(Services& services, SlotStorePtr slots, Exchange& exchange,
                              api::Result<Parsed> (*parse)(std::string_view),
                              GenerationJob (*make_job)(Parsed, const api::ModelDefaults&)) {
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  const bool named = co_await NameModel(services, exchange, parsed->model);
  if (!named) co_return;
  if constexpr (requires { parsed->unknown_options; }) LogUnknownOptions(exchange, parsed->unknown_options);
  auto model = co_await FindModelToAnswer(services, exchange, parsed->model);
  if (!model) co_return;
  const auto keep_alive = parsed->keep_alive;
  const int32_t slot = SlotOf(*parsed);
  auto job = co_await MakeJob(services, exchange, *model, *parsed, make_job);
  if (!job) co_return;
  RememberIn(slots, {TenantOf(exchange.request()), model->digest}, PartyOf(exchange), slot, *job);
  co_await RelayJob(services, exchange, model, keep_alive, *std::move(job));
}

GenerationJob LlamaCompletionJob(llama_server::CompletionRequest parsed, const api::ModelDefaults& defaults) {
  auto reply = std::make_unique<llama_server::CompletionEncoder>(llama_server::HeadOf(parsed, defaults));
  return {llama_server::ToRequests(std::move(parsed), defaults), std::move(reply)};
}

GenerationJob ChatJobWithTimings(openai::ChatRequest parsed, const api::ModelDefaults& defaults) {
  return MakeChatJob(std::move(parsed), defaults, /*timings=*/true);
}

api::Result<openai::ChatRequest> ParseChat(std::string_view body) {
  return llama_server::ParseModelOptional(body,
                                          [](std::string_view text) { return openai::ParseChat(text); });
}

api::Result<openai::ResponsesRequest> ParseResponses(std::string_view body) {
  return llama_server::ParseModelOptional(body,
                                          [](std::string_view text) { return openai::ParseResponses(text); });
}

// Computes the prefix, as far as it is not cached, and makes its end a restore point of the cache.
api::Request RequestFor(const SlotPrefix& prefix) {
  api::Request request;
  request.prompt = api::TokenPrompt{prefix.tokens};
  request.params.num_predict = 0;
  request.params.num_ctx = prefix.num_ctx;
  request.overflow = api::Overflow::kRefuse;
  request.shift = false;
  request.restore_point = true;
  request.client.cache_salt = prefix.cache_salt;
  return request;
}

const SlotPrefix* PrefixOf(const SlotStore& slots, const SlotOwner& owner,
                           const llama_server::SlotRequest& request) {
  const bool saves = request.action == llama_server::SlotAction::kSave;
  return saves ? slots.FindSlot(owner, request.slot) : slots.FindSnapshot(owner, request.name);
}

api::Error EmptyError(const llama_server::SlotRequest& request) {
  if (request.action == llama_server::SlotAction::kRestore) {
    return {api::ErrorCode::kNotFound, "snapshot '" + request.name + "' not found", "filename"};
  }
  return {api::ErrorCode::kNotFound, "slot " + std::to_string(request.slot) + " is empty", "id_slot"};
}

// A daemon that has just started still reads the folder. No thread waits for it.
Awaitable<void> WaitForFiles(const SlotFiles& files) {
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  while (files.ready && !files.ready()) {
    timer.expires_after(kFolderInterval);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
}

// A snapshot that an earlier daemon saved comes back into memory.
Awaitable<api::Result<void>> ReadSnapshot(Services& services, Exchange& exchange, SlotStore& slots,
                                          const SlotOwner& owner, const std::string& name) {
  if (!services.slot_files.read || slots.FindSnapshot(owner, name) != nullptr) co_return api::Result<void>();
  co_await WaitForFiles(services.slot_files);
  auto work = [&services, &owner, &name] { return services.slot_files.read(owner, name); };
  auto found = co_await RunFor(exchange, services.pools.reads, std::move(work));
  if (!found) co_return std::unexpected(std::move(found).error());
  // What was saved meanwhile is newer.
  if (!*found || slots.FindSnapshot(owner, name) != nullptr) co_return api::Result<void>();
  co_return slots.Save(owner, PartyOf(exchange), name, **std::move(found));
}

// It is saved in memory already: without a disk it lives as long as the daemon.
Awaitable<void> WriteSnapshot(Services& services, Exchange& exchange, const SlotOwner& owner,
                              const std::string& name, const SlotPrefix& prefix) {
  if (!services.slot_files.write) co_return;
  co_await WaitForFiles(services.slot_files);
  auto work = [&services, &owner, &name, &prefix] { return services.slot_files.write(owner, name, prefix); };
  const auto written = co_await RunFor(exchange, services.pools.blobs, std::move(work));
  if (!written) spdlog::warn("a slot's snapshot ends with this daemon: {}", written.error().message);
}

Awaitable<void> ActOnSlot(Services& services, SlotStorePtr slots, Exchange& exchange) {
  const HttpRequest& http = exchange.request();
  auto parsed = llama_server::ParseSlotAction(http.path.substr(kSlotPath.size()), http.query, http.body);
  if (!parsed) {
    co_await SendError(exchange, parsed.error());
    co_return;
  }
  const bool named = co_await NameModel(services, exchange, parsed->model);
  if (!named) co_return;
  const auto model = co_await FindModelToAnswer(services, exchange, parsed->model);
  if (!model) co_return;
  const SlotOwner owner{TenantOf(http), model->digest};
  if (parsed->action == llama_server::SlotAction::kErase) {
    HttpResponse response{.body =
                              llama_server::EncodeErased(parsed->slot, slots->Erase(owner, parsed->slot))};
    co_await exchange.Send(std::move(response));
    co_return;
  }
  if (parsed->action == llama_server::SlotAction::kRestore) {
    const auto read = co_await ReadSnapshot(services, exchange, *slots, owner, parsed->name);
    if (!read) {
      co_await SendError(exchange, read.error());
      co_return;
    }
  }
  const SlotPrefix* found = PrefixOf(*slots, owner, *parsed);
  if (found == nullptr) {
    co_await SendError(exchange, EmptyError(*parsed));
    co_return;
  }
  const SlotPrefix prefix = *found;
  if (parsed->action == llama_server::SlotAction::kSave) {
    if (const auto saved = slots->Save(owner, PartyOf(exchange), parsed->name, prefix); !saved) {
      co_await SendError(exchange, saved.error());
      co_return;
    }
    co_await WriteSnapshot(services, exchange, owner, parsed->name, prefix);
  }
  auto done = [slots, owner, party = PartyOf(exchange), prefix, slot = parsed->slot] {
    slots->Record(owner, party, slot, prefix);
  };
  auto reply = std::make_unique<llama_server::SlotEncoder>(*std::move(parsed), prefix.tokens.size(), done);
  GenerationJob job(RequestFor(prefix), std::move(reply));
  co_await RelayJob(services, exchange, model, std::nullopt, std::move(job));
}

}  // namespace

void AddLlamaServerRoutes(Router& router, Services& services) {
  const auto slots = std::make_shared<SlotStore>();
  const auto add = [&](const char* path, std::string_view summary, std::string_view body, auto parse,
                       auto make_job) {
    router.Add({"POST", path,
                [&services, slots, parse, make_job](Exchange& exchange) {
                  return AnswerForSlot(services, slots, exchange, parse, make_job);
                },
                true},
               {"llama.cpp", summary, body, kJsonOrEvents});
  };
  add("/completion", "Continuation of a prompt", "LlamaCompletion", llama_server::ParseCompletion,
      LlamaCompletionJob);
  add("/completions", "As /completion", "LlamaCompletion", llama_server::ParseCompletion, LlamaCompletionJob);
  add("/infill", "What belongs between two texts", "LlamaInfill", llama_server::ParseInfill,
      LlamaCompletionJob);
  add("/chat/completions", "As /v1/chat/completions; the model may be left out, and the reply has timings",
      "Chat", ParseChat, ChatJobWithTimings);
  add("/responses", "As /v1/responses; the model may be left out", "Responses", ParseResponses,
      MakeResponsesJob);
  router.Add(
      {.method = "POST",
       .path = std::string(kSlotPath) + "{id_slot}",
       .handler = [&services, slots](Exchange& exchange) { return ActOnSlot(services, slots, exchange); },
       .cancel_on_disconnect = true,
       .body_bytes_max = kSlotBodyBytesMax},
      {.tag = "llama.cpp",
       .summary = "Save, restore or erase what a slot remembers",
       .body = "Slot",
       .parameters = {"id_slot", "action"}});
}

}  // namespace quire::server
