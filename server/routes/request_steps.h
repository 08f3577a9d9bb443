// The steps of a request, shared by all dialects.
#pragma once

#include <algorithm>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/base/error.h"
#include "api/base/image_use.h"
#include "api/base/prompt.h"
#include "api/base/request_memory.h"
#include "server/routes/blocking.h"
#include "server/routes/handlers.h"

namespace quire::server {

// Where a body of this length is read and its job made; nullptr: at once, since a pool would cost more.
inline WorkKind* PoolFor(Services& services, size_t bytes) {
  constexpr size_t kAtOnceBytes = size_t{16} << 10;
  if (bytes > kLargeBodyBytes) return &services.pools.cpu;
  return bytes > kAtOnceBytes ? &services.pools.parses : nullptr;
}

// How many requests are made of it, each with a copy of about all that its body says.
template <class Parsed>
size_t ChoicesOf(const Parsed& parsed) {
  size_t choices = 1;
  if constexpr (requires { parsed.n; }) choices = static_cast<size_t>(parsed.n);
  if constexpr (requires { parsed.prompts; }) choices *= parsed.prompts.size();
  return choices;
}

// What the lists of a parsed request take in memory, with the copies that its choices are to have. Of many
// short elements that is far more than their body was.
template <class Parsed>
uint64_t ListMemoryOf(const Parsed& parsed) {
  uint64_t bytes = 0;
  if constexpr (requires { api::HeapBytes(parsed.messages); }) bytes += api::HeapBytes(parsed.messages);
  if constexpr (requires { parsed.images; }) {
    for (const api::Image& image : parsed.images) bytes += image.file ? image.file->size() : 0;
  }
  if constexpr (requires { api::HeapBytes(parsed.tools.tools); }) bytes += api::HeapBytes(parsed.tools.tools);
  if constexpr (requires { parsed.prompts; }) {
    for (const auto& prompt : parsed.prompts) bytes += sizeof(api::Request) + api::HeapBytes(prompt);
  }
  if constexpr (requires { parsed.chat.messages; })  // of which there is one, whatever its `n`
    bytes += ListMemoryOf(parsed.chat) / static_cast<uint64_t>(parsed.chat.n);
  if constexpr (requires { parsed.chat->chat; }) bytes += parsed.chat ? ListMemoryOf(*parsed.chat) : 0;
  if constexpr (requires { api::HeapBytes(parsed.inputs); }) bytes += api::HeapBytes(parsed.inputs);
  if constexpr (requires { api::HeapBytes(parsed.pairs.inputs); })
    bytes += api::HeapBytes(parsed.pairs.inputs);
  if constexpr (requires { parsed.n; }) bytes *= static_cast<uint64_t>(parsed.n);
  return bytes;
}

// Room for what the body becomes beside itself while it is parsed: a value, whose texts move on into the
// request, and the request's objects, of which there are about as many again. A large body may be a short
// text: what is no UTF-8 takes three times its bytes, and a list of empty strings twenty times. The bytes of
// its texts, or an error: there is no room.
api::Result<uint64_t> ReserveParsing(Exchange& exchange);

// The request of a body, and what it takes, where there is room for it.
template <class Parse>
auto ParseWithin(Exchange& exchange, Parse& parse, uint64_t& bytes) -> std::invoke_result_t<Parse&> {
  const api::Result<uint64_t> texts = ReserveParsing(exchange);
  if (!texts) return std::unexpected(texts.error());
  auto parsed = parse();
  if (parsed) bytes = std::max(*texts, ListMemoryOf(*parsed));
  return parsed;
}

// The request of a body, read by `parse` on a pool when it is large enough for many such bodies to hold other
// clients up. The body is freed.
template <class Parse>
Awaitable<std::invoke_result_t<Parse&>> ReadRequest(Services& services, Exchange& exchange, Parse parse) {
  uint64_t bytes = 0;
  auto work = [&exchange, &parse, &bytes] { return ParseWithin(exchange, parse, bytes); };
  std::optional<std::invoke_result_t<Parse&>> parsed;
  if (WorkKind* pool = PoolFor(services, exchange.body_bytes())) {
    parsed = co_await RunFor(exchange, *pool, std::move(work));
  } else {
    parsed = work();
  }
  exchange.DropBody();
  if (*parsed) {
    if (auto full = ReserveRequest(exchange, bytes)) parsed = std::unexpected(*std::move(full));
    exchange.ShrinkRequest(bytes);
  }
  co_return *std::move(parsed);
}

// The same for the texts of a body that are embedded or ranked, each of which is copied for its runner.
template <class Parse>
Awaitable<std::invoke_result_t<Parse&>> ParseTexts(Services& services, Exchange& exchange, Parse parse) {
  auto parsed = co_await ReadRequest(services, exchange, std::move(parse));
  if (parsed) {
    if (auto full = ReserveRequest(exchange, 2 * ListMemoryOf(*parsed)))
      parsed = std::unexpected(*std::move(full));
  }
  co_return parsed;
}

// The request of a body. Nothing: it was answered with the error.
template <class Parsed>
Awaitable<std::optional<Parsed>> ParseBody(Services& services, Exchange& exchange,
                                           api::Result<Parsed> (*parse)(std::string_view)) {
  auto work = [parse, &body = exchange.request().body] { return parse(body); };
  auto parsed = co_await ReadRequest(services, exchange, std::move(work));
  if (!parsed) {
    co_await SendError(exchange, parsed.error());
    co_return std::nullopt;
  }
  co_return *std::move(parsed);
}

// The model that a request names. Null: the request was answered with the error.
Awaitable<SharedModel> FindModel(Services& services, Exchange& exchange, const std::string& name);

// Names the model of a request that names none: the only one that is loaded, or, while none is, the only one
// of the store. With a `capability` the only one of the store that has it goes before. Logs the name. False:
// the request was answered with the error.
Awaitable<bool> NameModel(Services& services, Exchange& exchange, std::string& name,
                          std::string_view capability = {});

// The same for a request that wants an answer of a model that completes. One that names "dummy" names none,
// unless a model has this name: Hugging Face's client knows only the server's address.
inline constexpr std::string_view kAnyModel = "dummy";
Awaitable<bool> NameModelToAnswer(Services& services, Exchange& exchange, std::string& name);

// The same for a request that wants an answer, which is refused before its job is made while no more of its
// party may wait for the model.
Awaitable<SharedModel> FindModelToAnswer(Services& services, Exchange& exchange, const std::string& name);

// The defaults that the model adds to a request.
api::ModelDefaults DefaultsOf(const StoredModel& model);

// Makes of the images of a parsed request, whose messages they are in, what the model takes. False: the
// request was answered with the error.
Awaitable<bool> SettleImages(Services& services, Exchange& exchange, const StoredModel& model,
                             const api::ImageUse& use, std::vector<api::Message>& messages);

template <class Parsed>
Awaitable<bool> SettleImages(Services& services, Exchange& exchange, const StoredModel& model,
                             Parsed& parsed) {
  if constexpr (requires { parsed.image_use; }) {
    std::vector<api::Message> none;
    std::vector<api::Message>* messages = &none;
    if constexpr (requires { parsed.messages; }) messages = &parsed.messages;
    const bool settled = co_await SettleImages(services, exchange, model, parsed.image_use, *messages);
    co_return settled;
  }
  co_return true;
}

// The job of a parsed request, which is moved out; made where a body as long as all its copies is read: every
// choice copies it, and the encoder writes out what the reply repeats. Nothing: there is no room for the
// copies, or the model takes no images, and it was answered with the error.
template <class Parsed>
Awaitable<std::optional<GenerationJob>> MakeJob(Services& services, Exchange& exchange,
                                                const StoredModel& model, Parsed& parsed,
                                                GenerationJob (*make_job)(Parsed,
                                                                          const api::ModelDefaults&)) {
  const bool settled = co_await SettleImages(services, exchange, model, parsed);
  if (!settled) co_return std::nullopt;
  const size_t choices = ChoicesOf(parsed);
  const uint64_t of_model = api::HeapBytes(model.messages) + model.system.size();
  if (const auto full = ReserveRequest(exchange, ListMemoryOf(parsed) + choices * of_model)) {
    co_await SendError(exchange, *full);
    co_return std::nullopt;
  }
  auto work = [make_job, &parsed, &model] {
    GenerationJob job = make_job(std::move(parsed), DefaultsOf(model));
    job.memory_bytes = MemoryBytes(job.choices);
    return job;
  };
  WorkKind* pool = PoolFor(services, (exchange.body_bytes() + of_model) * choices);
  if (pool == nullptr) co_return work();
  auto job = co_await RunFor(exchange, *pool, std::move(work));
  co_return job;
}

// RelayReply() of a job for this model, in the name of the exchange's client.
Awaitable<void> RelayJob(Services& services, Exchange& exchange, const SharedModel& model,
                         std::optional<scheduler::KeepAlive> keep_alive, GenerationJob job);

// All steps of a request whose dialect does no more than translate it.
template <class Parsed>
Awaitable<void> AnswerRequest(Services& services, Exchange& exchange,
                              api::Result<Parsed> (*parse)(std::string_view),
                              GenerationJob (*make_job)(Parsed, const api::ModelDefaults&)) {
  auto parsed = co_await ParseBody(services, exchange, parse);
  if (!parsed) co_return;
  const bool named = co_await NameModelToAnswer(services, exchange, parsed->model);
  if (!named) co_return;
  if constexpr (requires { parsed->unknown_options; }) LogUnknownOptions(exchange, parsed->unknown_options);
  auto model = co_await FindModelToAnswer(services, exchange, parsed->model);
  if (!model) co_return;
  const auto keep_alive = parsed->keep_alive;
  auto job = co_await MakeJob(services, exchange, *model, *parsed, make_job);
  if (!job) co_return;
  co_await RelayJob(services, exchange, model, keep_alive, *std::move(job));
}

// Answers with the list of all models, of which `entry_of` makes the entries. A long list is written on a
// pool.
template <class Entry>
Awaitable<void> SendModels(Services& services, Exchange& exchange,
                           Awaitable<Entry> (*entry_of)(Services&, Exchange&, const StoredModel&),
                           std::string (*encode)(const std::vector<Entry>&)) {
  constexpr size_t kManyEntries = 32, kEntryBytes = 1024;
  const auto models = co_await services.models.List(PartyOf(exchange));
  const auto error = models ? ReserveAnswer(exchange, models->size() * kEntryBytes) : models.error();
  if (error) {
    co_await SendError(exchange, *error);
    co_return;
  }
  std::vector<Entry> entries;
  for (const SharedModel& model : *models) {
    Entry entry = co_await entry_of(services, exchange, *model);
    entries.push_back(std::move(entry));
  }
  auto work = [&entries, encode] { return encode(entries); };
  HttpResponse response;
  if (entries.size() <= kManyEntries) {
    response.body = work();
  } else {
    response.body = co_await RunFor(exchange, services.pools.cpu, std::move(work));
  }
  co_await exchange.Send(std::move(response));
}

}  // namespace quire::server
