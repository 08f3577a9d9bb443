#include "server/routes/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/base/ascii.h"
#include "api/base/limits.h"
#include "api/json/read.h"
#include "api/openai/embedding.h"
#include "api/openai/text_generation.h"
#include "server/http/party.h"
#include "server/routes/blocking.h"
#include "server/routes/handlers.h"
#include "server/routes/request_steps.h"
#include "server/routes/vector_cache.h"

namespace quire::server {
namespace {

// Texts of one request that its runner has at once: enough to fill its batches, few enough to leave the queue
// to others.
constexpr size_t kAtOnceMax = 32;
// A reply of more numbers is written on a pool (65,536 take 8 ms): on that for short work, or on that for
// what takes long, as one that may repeat many texts.
constexpr size_t kSmallReplyNumbers = size_t{1} << 12;
constexpr size_t kLargeReplyNumbers = size_t{1} << 16;
// What a reply takes: of each number, which is a float and then text, and of each text beside its numbers.
constexpr size_t kNumberBytes = sizeof(float) + 12;
constexpr size_t kTextBytes = 128;

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

// A runner says how many: of 2,048 texts the sum may be more than a log line has.
void AddTokens(std::optional<int32_t>& sum, int32_t tokens) {
  sum = static_cast<int32_t>(std::min<int64_t>(int64_t{sum.value_or(0)} + tokens, INT32_MAX));
}

void RecordEmbedEvent(RequestLog& log, const api::Event& event) {
  const auto* finished = std::get_if<api::Finished>(&event);
  if (finished == nullptr) return;
  AddTokens(log.prompt_tokens, finished->usage.prompt_tokens);
  AddTokens(log.cached_tokens, finished->usage.cached_tokens);
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
  if (keys.size() <= kManyTexts && exchange.body_bytes() <= kLargeBodyBytes) {
    work();
  } else {
    co_await RunFor(exchange, services.pools.cpu, std::move(work));
  }
  co_return keys;
}

// The vectors of a reply, which are taken in as far as the exchange has room for its answer.
class ReplyVectors {
 public:
  // `more_bytes`: what the reply has beside the vectors.
  ReplyVectors(Exchange& exchange, size_t count, size_t more_bytes)
      : exchange_(exchange), more_bytes_(more_bytes), vectors_(count) {}

  // The first that comes has the width of all. An error: there is no room, or a runner is broken.
  std::optional<api::Error> Set(size_t i, std::vector<float> vector) {
    if (!width_) {
      width_ = vector.size();
      const size_t of_each = kTextBytes + *width_ * kNumberBytes;
      if (auto full = ReserveAnswer(exchange_, more_bytes_ + vectors_.size() * of_each)) return full;
    }
    if (vector.size() != *width_) {
      return api::Error{api::ErrorCode::kInternal,
                        fmt::format("a vector of {} numbers behind one of {}", vector.size(), *width_)};
    }
    vectors_[i] = std::move(vector);
    return std::nullopt;
  }
  std::vector<std::vector<float>> Move() { return std::move(vectors_); }

 private:
  Exchange& exchange_;
  const size_t more_bytes_;
  std::vector<std::vector<float>> vectors_;
  std::optional<size_t> width_;
};

// Lets other clients' work run, once in a while.
Awaitable<void> Yield(size_t done) {
  constexpr size_t kAtOnce = 32;
  if (done % kAtOnce != 0) co_return;
  const auto executor = co_await boost::asio::this_coro::executor;
  co_await boost::asio::post(executor, boost::asio::use_awaitable);
}

// Others have the place in the queue, which may be free again. A request that waited too long has an error of
// its own.
bool LostItsPlace(const api::Error& error) {
  return error.code == api::ErrorCode::kOverloaded && error.message == scheduler::kBusy;
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
                                                  const SharedModel& model, const api::EmbedRequest& request,
                                                  size_t more_bytes) {
  api::EmbedResult result;
  std::deque<TextJob> running;
  api::Client client;
  SetClient(exchange, client);
  client.cache_salt = request.cache_salt;
  const size_t count = request.inputs.size();
  size_t at_once = kAtOnceMax;
  // A request that says how long the model stays wants it loaded.
  const auto keep_alive = ClaimOf(exchange, request.keep_alive);
  const bool looks_up = services.vectors != nullptr && !keep_alive;
  ReplyVectors vectors(exchange, count, more_bytes);
  const auto keys = co_await HashTexts(services, exchange, *model, request);
  size_t displaced = 0;  // in a row
  std::deque<size_t> left(count);
  std::iota(left.begin(), left.end(), size_t{0});
  while (!left.empty() || !running.empty()) {
    while (!left.empty() && running.size() < at_once) {
      const size_t index = left.front();
      if (auto known = looks_up ? services.vectors->Find(keys[index]) : std::nullopt) {
        result.prompt_tokens += known->prompt_tokens;
        AddTokens(exchange.log().prompt_tokens, known->prompt_tokens);
        AddTokens(exchange.log().cached_tokens, known->prompt_tokens);
        if (auto full = vectors.Set(index, std::move(known->vector))) co_return std::unexpected(*full);
        left.pop_front();
        co_await Yield(count - left.size());
        continue;
      }
      api::Request one = request.At(index, model->parameters);
      one.client = client;
      auto placed = co_await services.backend.Submit(SpecOf(model), std::move(one), keep_alive);
      // Texts of requests like this one may be what fills the queue: it goes on with fewer, so that all of
      // them leave room for others.
      if (!placed && placed.error().code == api::ErrorCode::kOverloaded && !running.empty()) {
        at_once = std::max<size_t>(1, running.size() / 2);
        break;
      }
      if (!placed) co_return std::unexpected(std::move(placed).error());
      left.pop_front();
      result.load = std::max(result.load, (*placed)->load_duration());
      running.push_back({.index = index, .stream = *std::move(placed)});
    }
    if (running.empty()) break;
    const TextJob& first = running.front();
    auto finished = co_await Finish(*first.stream, exchange.log());
    // Others have its place in the queue now: it is tried again, among fewer.
    if (!finished && LostItsPlace(finished.error()) && ++displaced <= kAtOnceMax) {
      at_once = std::max<size_t>(1, at_once / 2);
      left.push_front(first.index);
      running.pop_front();
      continue;
    }
    if (!finished) co_return std::unexpected(OfInput(finished.error(), request, first.index));
    displaced = 0;
    at_once = std::min(at_once + 1, kAtOnceMax);
    if (request.inputs[first.index].rank && finished->embedding.size() != 1)
      co_return api::Fail(api::ErrorCode::kInternal, "the runner gave no score");
    result.prompt_tokens += finished->usage.prompt_tokens;
    if (services.vectors != nullptr) {
      services.vectors->Store(keys[first.index], {finished->embedding, finished->usage.prompt_tokens});
    }
    if (auto full = vectors.Set(first.index, std::move(finished->embedding)))
      co_return std::unexpected(*full);
    running.pop_front();
  }
  result.vectors = vectors.Move();
  co_return result;
}

namespace {

// A request without a text only loads the model.
Awaitable<api::Result<api::EmbedResult>> EmbedOrLoad(Services& services, Exchange& exchange,
                                                     const SharedModel& model,
                                                     const api::EmbedRequest& request) {
  if (!request.inputs.empty()) {
    auto result = co_await EmbedAll(services, exchange, model, request);
    co_return result;
  }
  const auto keep_alive = ClaimOf(exchange, request.keep_alive);
  const auto loaded = co_await services.backend.Load(SpecOf(model), keep_alive, PartyOf(exchange));
  if (!loaded) co_return std::unexpected(loaded.error());
  co_return api::EmbedResult{.vectors = {}, .load = *loaded};
}

Awaitable<api::Result<api::EmbedRequest>> Parse(Services& services, Exchange& exchange,
                                                api::EmbedDialect dialect) {
  auto work = [dialect, &body = exchange.request().body] { return api::ParseEmbed(dialect, body); };
  auto parsed = co_await ParseTexts(services, exchange, std::move(work));
  co_return parsed;
}

// Where a reply to this body is written, which has `numbers` of them; null: at once.
WorkKind* PoolForReply(Services& services, uint64_t body_bytes, size_t numbers) {
  if (numbers > kLargeReplyNumbers || body_bytes > kLargeBodyBytes) return &services.pools.cpu;
  return numbers > kSmallReplyNumbers ? &services.pools.parses : nullptr;
}

// Frees the vectors.
Awaitable<std::string> EncodeVectors(Services& services, Exchange& exchange, const api::EmbedRequest& request,
                                     api::EmbedResult& result) {
  const size_t width = result.vectors.empty() ? 0 : result.vectors.front().size();
  auto work = [&request, &result] {
    std::string body = api::EncodeEmbed(request, result);
    result.vectors.clear();
    return body;
  };
  WorkKind* const pool = PoolForReply(services, exchange.body_bytes(), width * result.vectors.size());
  if (pool == nullptr) co_return work();
  auto body = co_await RunFor(exchange, *pool, std::move(work));
  co_return body;
}

Awaitable<void> Embed(Services& services, Exchange& exchange, api::EmbedDialect dialect) {
  auto request = co_await Parse(services, exchange, dialect);
  if (!request) {
    co_await SendError(exchange, request.error());
    co_return;
  }
  const bool named = co_await NameModel(services, exchange, request->model, "embedding");
  if (!named) co_return;
  LogUnknownOptions(exchange, request->unknown_options);
  const auto model = co_await services.models.Find(request->model, PartyOf(exchange));
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
  response.body = co_await EncodeVectors(services, exchange, *request, *result);
  co_await exchange.Send(std::move(response));
}

GenerationJob TextGenerationJob(api::openai::TextGenerationRequest parsed,
                                const api::ModelDefaults& defaults) {
  auto reply = std::make_unique<api::openai::TextGenerationEncoder>(parsed);
  return {api::openai::ToRequests(static_cast<api::openai::CompletionRequest&&>(parsed), defaults),
          std::move(reply)};
}

// Text or vectors, as Hugging Face's servers for either answer at this path.
Awaitable<void> AnswerRoot(Services& services, Exchange& exchange) {
  auto work = [&body = exchange.request().body] { return api::openai::IsTextGeneration(body); };
  bool text = false;
  if (WorkKind* pool = PoolFor(services, exchange.body_bytes())) {
    text = co_await RunFor(exchange, *pool, std::move(work));
  } else {
    text = work();
  }
  if (text) {
    co_await AnswerRequest(services, exchange, api::openai::ParseTextGeneration, TextGenerationJob);
  } else {
    co_await Embed(services, exchange, api::EmbedDialect::kTei);
  }
}

// The type of most weights, as text-embeddings-inference names it.
std::string DtypeOf(const std::string& level) {
  if (level == "F16") return "float16";
  if (level == "BF16") return "bfloat16";
  if (level == "F32") return "float32";
  return api::AsciiLower(level);
}

// What clients of text-embeddings-inference read about the model that requests without a name mean.
Awaitable<void> Info(Services& services, Exchange& exchange) {
  std::string name;
  const bool named = co_await NameModel(services, exchange, name, "embedding");
  if (!named) co_return;
  const auto model = co_await FindModel(services, exchange, name);
  if (!model) co_return;
  const fair::PartyId& party = PartyOf(exchange);
  const auto capabilities = co_await services.inspector.Capabilities(*model, party);
  const bool ranks = std::ranges::find(capabilities, "rerank") != capabilities.end();
  const int32_t length = co_await services.inspector.DefaultContext(*model, party);
  const api::Json type =
      ranks ? api::Json{{"reranker", {{"id2label", {{"0", "LABEL_0"}}}, {"label2id", {{"LABEL_0", 0}}}}}}
            : api::Json{{"embedding", {{"pooling", nullptr}}}};
  const api::Json info = {{"model_id", model->name.Display()},
                          {"model_sha", model->digest},
                          {"model_dtype", DtypeOf(model->details.quantization_level)},
                          {"model_type", type},
                          {"max_input_length", length},
                          {"max_client_batch_size", api::kEmbedInputsMax},
                          {"auto_truncate", false},
                          {"version", QUIRE_VERSION}};
  HttpResponse response{.body = api::DumpJson(info)};
  co_await exchange.Send(std::move(response));
}

}  // namespace

void AddEmbeddingRoutes(Router& router, Services& services) {
  const auto add = [&](const char* path, api::EmbedDialect dialect, Operation operation) {
    router.Add(
        {"POST", path,
         [&services, dialect](Exchange& exchange) { return Embed(services, exchange, dialect); }, true},
        std::move(operation));
  };
  using enum api::EmbedDialect;
  add("/api/embed", kOllama, {"ollama", "Embeddings", "OllamaEmbed"});
  add("/api/embeddings", kOllamaLegacy,
      {"ollama", "Embedding of one text, not normalized", "OllamaEmbeddings"});
  add("/v1/embeddings", kOpenAi, {"openai", "Embeddings", "Embeddings"});
  add("/v1/embed", kCohereOld, {"cohere", "As /v2/embed, of Cohere's first version", "CohereEmbed"});
  add("/v2/embed", kCohere, {"cohere", "Embeddings in the shape of Cohere", "CohereEmbed"});
  constexpr std::string_view kTeiTag = "text-embeddings-inference";
  add("/embed", kTei,
      {kTeiTag, "Embeddings in the shape of text-embeddings-inference: a list of vectors", "TextEmbeddings"});
  router.Add({"POST", "/", [&services](Exchange& exchange) { return AnswerRoot(services, exchange); }, true},
             {kTeiTag, "As /embed; a body with parameters or stream generates text", "TextEmbeddings"});
  router.Add({"GET", "/info", [&services](Exchange& exchange) { return Info(services, exchange); }},
             {kTeiTag, "The model that embeds, in the shape of text-embeddings-inference"});
  add("/embedding", kLlamaServer, {"llama.cpp", "Embeddings as a list", "LlamaEmbedding"});
  add("/embeddings", kLlamaServer, {"llama.cpp", "As /embedding", "LlamaEmbedding"});
}

}  // namespace quire::server
