// Bounds of request bodies that a route has for itself, and where large ones are read and written.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <zlib.h>

#include <chrono>
#include <latch>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/http/party.h"
#include "server/routes/vector_cache.h"
#include "server/testing/store_fixture.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;
using testing::TestDaemon;

struct RouteLimit {
  const char* method;
  const char* path;
  size_t bytes_max;
};

constexpr size_t kKiB = 1024;
constexpr RouteLimit kLimits[] = {
    {"POST", "/api/show", 1024 * kKiB},   {"POST", "/api/copy", 64 * kKiB},
    {"DELETE", "/api/delete", 64 * kKiB}, {"POST", "/api/create", 16 * 1024 * kKiB},
    {"POST", "/api/pull", 64 * kKiB},     {"POST", "/api/push", 64 * kKiB}};

// What the daemon says of a body of this length, before any byte of it is sent.
RawResponse Announce(TestDaemon& daemon, const RouteLimit& route, size_t bytes) {
  RawClient client(daemon.port());
  client.Send(
      fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                  route.method, route.path, bytes));
  return client.Read();
}

TEST(BodyLimits, RoutesOfTheStoreTakeSmallBodies) {
  TestDaemon daemon;
  for (const RouteLimit& route : kLimits) {
    EXPECT_EQ(Announce(daemon, route, route.bytes_max).status, 100) << route.path;
    const RawResponse refused = Announce(daemon, route, route.bytes_max + 1);
    EXPECT_EQ(refused.status, 413) << route.path;
    EXPECT_THAT(refused.body, HasSubstr(fmt::format("the limit is {} bytes", route.bytes_max)));
  }
}

TEST(BodyLimits, ASmallerBoundOfAllRoutesHolds) {
  TestDaemon daemon({.parser = {.body_bytes = 1000}});
  const RawResponse refused = Announce(daemon, kLimits[0], 1001);
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, HasSubstr("the limit is 1000 bytes"));
}

std::string Gzip(const std::string& text) {
  z_stream state = {};
  EXPECT_EQ(::deflateInit2(&state, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  ::deflateEnd(&state);
  return out;
}

TEST(BodyLimits, CompressedBodiesAreDecodedWithinTheSameBounds) {
  TestDaemon daemon;
  const auto post = [&daemon](const std::string& body, const std::string& encoding) {
    return daemon.Post("/api/show", body, "Content-Encoding: " + encoding + "\r\n");
  };
  EXPECT_EQ(post(Gzip(R"({"model":"demo"})"), "gzip").status, 200);
  EXPECT_EQ(post(R"({"model":"demo"})", "identity").status, 200);
  EXPECT_EQ(post(Gzip(R"({"model":"none"})"), "gzip").status, 404);
  const RawResponse unknown = post(R"({"model":"demo"})", "br");
  EXPECT_EQ(unknown.status, 415);
  EXPECT_EQ(unknown.headers.at("accept-encoding"), "gzip, zstd");
  EXPECT_EQ(post(R"({"model":"demo"})", "gzip").status, 400);
  const RawResponse bomb = post(Gzip(std::string(50 << 20, ' ')), "gzip");
  EXPECT_EQ(bomb.status, 413);
  EXPECT_THAT(bomb.body, HasSubstr("when decompressed"));
  EXPECT_EQ(
      daemon.Post("/api/blobs/sha256:" + std::string(64, 'a'), "x", "Content-Encoding: gzip\r\n").status,
      415);
  EXPECT_EQ(daemon.Get("/api/tags", "Content-Encoding: br\r\n").status, 200) << "there is no body";
}

TEST(BodyLimits, LargeBodiesAreReadOffTheIoThread) {
  TestDaemon daemon;
  const std::string text(200 * kKiB, 's');
  const auto tasks_of = [&daemon](const char* path, const json& body) {
    const uint64_t before = daemon.pools().cpu.tasks();
    daemon.Post(path, body.dump());
    return daemon.pools().cpu.tasks() - before;
  };
  EXPECT_EQ(tasks_of("/api/show", {{"model", "nobody"}, {"system", text}}), 1u);
  EXPECT_EQ(tasks_of("/api/create", {{"model", "made"}, {"from", "demo"}, {"system", text}}), 1u);
  EXPECT_EQ(tasks_of("/api/show", {{"model", "nobody"}}), 0u);
}

uint64_t TasksOf(TestDaemon& daemon, const char* path, const json& body) {
  const uint64_t before = daemon.pools().cpu.tasks();
  EXPECT_EQ(daemon.Post(path, body.dump()).status, 200) << path;
  return daemon.pools().cpu.tasks() - before;
}

std::vector<testing::Step> ShortAnswer() {
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}};
  finished.embedding = {0.5F};
  return {api::Event(api::PromptReady{3, 0}), api::Event(api::TextDelta{"hi", {}, 1}), api::Event(finished)};
}

// Parsed, copied into its requests and encoded, each on the pool.
TEST(BodyLimits, WhatRepeatsALargeRequestIsWrittenOffTheIoThread) {
  TestDaemon daemon;
  daemon.backend().script.events = ShortAnswer();
  const std::string text(200 * kKiB, 's');
  const json function = {{"type", "function"}, {"name", "f"}, {"description", text}};
  const auto respond = [&](bool stream, const json& tools) {
    return TasksOf(daemon, "/v1/responses",
                   {{"model", "demo"}, {"input", "x"}, {"tools", tools}, {"stream", stream}});
  };
  EXPECT_EQ(respond(true, json::array({function})), 4u) << "its first event and its last one";
  EXPECT_EQ(respond(false, json::array({function})), 3u);
  EXPECT_EQ(respond(true, json::array()), 0u);
  for (const bool stream : {false, true}) {
    EXPECT_EQ(TasksOf(daemon, "/completion", {{"prompt", text}, {"stream", stream}}), 3u);
    EXPECT_EQ(TasksOf(daemon, "/v1/completions",
                      {{"model", "demo"}, {"prompt", text}, {"stream", stream}, {"echo", true}}),
              3u);
  }
  EXPECT_EQ(TasksOf(daemon, "/completion", {{"prompt", "x"}, {"n_cmpl", 3}}), 0u);
  const json message = {{"role", "user"}, {"content", std::string(2 * kKiB, 's')}};
  const json chat = {{"model", "demo"}, {"n", 100}, {"messages", json::array({message})}};
  EXPECT_EQ(TasksOf(daemon, "/v1/chat/completions", chat), 1u) << "100 copies of a small body";
}

// 65,536 of them, of texts whose vectors are known, take the I/O thread 8 ms.
TEST(BodyLimits, NumbersOfEmbeddingsAreWrittenOffTheIoThread) {
  TestDaemon daemon;
  api::Finished finished;
  finished.embedding = std::vector<float>(1024, 0.5F);
  daemon.backend().script.events = {api::Event(api::PromptReady{3, 0}), api::Event(finished)};
  const auto embed = [&](size_t texts, uint64_t parses, uint64_t cpu) {
    WorkPools& pools = daemon.pools();
    const uint64_t parses_before = pools.parses.tasks(), cpu_before = pools.cpu.tasks();
    const json body = {{"model", "demo"}, {"input", std::vector<std::string>(texts, "x")}};
    const json reply = json::parse(daemon.Post("/api/embed", body.dump()).body);
    EXPECT_EQ(reply["embeddings"].size(), texts);
    EXPECT_EQ(pools.parses.tasks() - parses_before, parses) << texts;
    EXPECT_EQ(pools.cpu.tasks() - cpu_before, cpu) << texts;
  };
  embed(4, 0, 0);
  embed(5, 1, 0);
  embed(64, 1, 0);
  embed(65, 0, 1);
}

// While the client does not read, nothing is kept but the answer's bytes: its text and its encoder took as
// much again, and another copy of it was behind the header.
TEST(BodyLimits, AnAnswerIsInMemoryOnceWhileItIsSent) {
  constexpr size_t kAnswerBytes = 40 * 1024 * kKiB;  // larger than what the C library keeps
  const auto mapped = [] { return static_cast<size_t>(::mallinfo2().hblkhd); };
  TestDaemon daemon;
  auto& events = daemon.backend().script.events;
  events = {api::Event(api::PromptReady{3, 0}),
            api::Event(api::TextDelta{std::string(kAnswerBytes, 't'), {}, 1}), api::Event(api::Finished{})};
  const size_t before = mapped();
  RawClient client(daemon.port());
  client.Send(testing::PostBytes("/api/generate", R"({"model":"demo","prompt":"x","stream":false})"));
  client.ReadSome(1);
  EXPECT_LT(mapped() - before, 3 * kAnswerBytes)
      << "the script's own copy, and a string with room at its end";
}

// Holds the threads of a pool until it ends.
class BusyPool {
 public:
  explicit BusyPool(WorkKind pool) : pool_(pool) {
    for (ptrdiff_t i = 0; i < kThreads; ++i) {
      pool.Post(
          [latches = latches_] {
            latches->begun.count_down();
            latches->go.wait();
          },
          PartyOf({}, fmt::format("busy {}", i)));
    }
    latches_->begun.wait();
  }
  ~BusyPool() { latches_->go.count_down(); }
  BusyPool(const BusyPool&) = delete;
  BusyPool& operator=(const BusyPool&) = delete;

  void AwaitTaskOf(const fair::PartyId& party) const {
    for (auto end = std::chrono::steady_clock::now() + 30s; pool_.WaitingOf(party) == 0;) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "no task of " << party.name();
      std::this_thread::yield();
    }
  }

 private:
  static constexpr ptrdiff_t kThreads = 2;  // of the pool
  struct Latches {
    std::latch begun{kThreads}, go{1};
  };
  WorkKind pool_;
  const std::shared_ptr<Latches> latches_ = std::make_shared<Latches>();
};

// Whose turn it is: work without a party would take those of the daemon itself.
TEST(BodyLimits, WorkOnFilesTakesTheTurnOfItsParty) {
  TestDaemon daemon;
  daemon.OnIoThread([&] {
    daemon.services().slot_files.read = [](const SlotOwner&, const std::string&) { return std::nullopt; };
  });
  const std::string digest = "sha256:" + std::string(64, 'a');
  const std::vector<std::string> requests = {
      testing::PostBytes("/slots/0?action=restore", R"({"filename":"s","model":"demo"})"),
      testing::PostBytes("/api/create", json{{"model", "made"}, {"files", {{"w.gguf", digest}}}}.dump()),
      "HEAD /api/blobs/" + digest + " HTTP/1.1\r\nHost: localhost\r\n\r\n"};
  testing::Age(daemon.store().ManifestPath("demo"));
  daemon.Post("/slots/0?action=restore",
              R"({"filename":"s","model":"demo"})");  // the model is known from here on
  for (const std::string& request : requests) {
    RawClient client(daemon.port());
    {
      const BusyPool busy(daemon.pools().reads);
      client.Send(request);
      busy.AwaitTaskOf(PartyOf({}, "127.0.0.1:1"));
    }
    EXPECT_GT(client.Read(request.starts_with("HEAD")).status, 0) << request;
  }
}

TEST(BodyLimits, ErrorsQuoteOnlyTheStartOfALongName) {
  TestDaemon daemon;
  const std::string name(1024 * kKiB, 'q');
  const json chat = {{"model", "demo"}, {"messages", json::array({{{"role", "user"}, {"content", "x"}}})}};
  json biased = chat, nameless = chat;
  biased["logit_bias"] = {{name, 1}};
  nameless["model"] = name;
  const RawResponse refused = daemon.Post("/v1/chat/completions", biased.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_LT(refused.body.size(), 40 * kKiB);
  EXPECT_THAT(refused.body, HasSubstr("logit_bias.qqq"));
  EXPECT_EQ(json::parse(daemon.Post("/v1/chat/completions", nameless.dump()).body)["error"]["message"],
            "invalid model name");
}

TEST(BodyLimits, ALargeChunkOfAStreamArrivesWhole) {
  TestDaemon daemon;
  daemon.backend().script.events = ShortAnswer();
  const json function = {{"type", "function"}, {"name", "f"}, {"description", std::string(700 * kKiB, 's')}};
  const json body = {{"model", "demo"}, {"input", "x"}, {"tools", json::array({function})}, {"stream", true}};
  const std::string reply = daemon.Post("/v1/responses", body.dump()).body;
  size_t events = 0, with_tools = 0;
  for (size_t at = reply.find("data: "); at != std::string::npos; at = reply.find("data: ", at + 1)) {
    const json event = json::parse(reply.substr(at + 6, reply.find('\n', at) - at - 6));
    EXPECT_EQ(event["sequence_number"], events++);
    if (event.contains("response")) with_tools += event["response"]["tools"] == body["tools"] ? 1 : 0;
  }
  EXPECT_EQ(with_tools, 3u);
}

TEST(BodyLimits, ManyTextsAreHashedAndRankedOffTheIoThread) {
  TestDaemon daemon;
  VectorCache cache;
  daemon.OnIoThread([&] { daemon.services().vectors = &cache; });
  daemon.backend().script.events = ShortAnswer();
  const auto rank = [&](size_t documents) {
    return TasksOf(
        daemon, "/v1/rerank",
        {{"model", "demo"}, {"query", "q"}, {"documents", std::vector<std::string>(documents, "x")}});
  };
  EXPECT_EQ(rank(300), 2u);
  const uint64_t hits = cache.stats().hits;
  EXPECT_EQ(rank(300), 2u);
  EXPECT_EQ(cache.stats().hits, hits + 300);
  EXPECT_EQ(rank(10), 0u);
}

TEST(BodyLimits, LargeRepliesAreWrittenOffTheIoThread) {
  TestDaemon daemon;
  json tokens = json::array();
  for (int i = 0; i < 20'000; ++i) tokens.push_back(fmt::format("token{}", i));
  daemon.backend().script.inspected.model_info_json = json{{"tokenizer.ggml.tokens", tokens}}.dump();
  const uint64_t before = daemon.pools().cpu.tasks();
  const RawResponse shown = daemon.Post("/api/show", R"({"model":"demo","verbose":true})");
  EXPECT_EQ(json::parse(shown.body)["model_info"]["tokenizer.ggml.tokens"].size(), 20'000u);
  EXPECT_EQ(daemon.pools().cpu.tasks() - before, 1u);
  for (int i = 0; i < 64; ++i) daemon.store().AddPlain(fmt::format("m{}", i));
  EXPECT_EQ(json::parse(daemon.Get("/api/tags").body)["models"].size(), 65u);
  EXPECT_EQ(json::parse(daemon.Get("/v1/models").body)["data"].size(), 65u);
  EXPECT_EQ(daemon.pools().cpu.tasks() - before, 3u);
}

// They wait for no large body, and no client's many of them hold the I/O thread up.
TEST(BodyLimits, BodiesOfOrdinarySizeAreReadOnAThreadOfTheirOwn) {
  TestDaemon daemon;
  daemon.backend().script.events = ShortAnswer();
  const auto parses_of = [&](size_t bytes) {
    const uint64_t before = daemon.pools().parses.tasks();
    const json messages = json::array({{{"role", "user"}, {"content", std::string(bytes, 'p')}}});
    EXPECT_EQ(TasksOf(daemon, "/v1/chat/completions", {{"model", "demo"}, {"messages", messages}}), 0u);
    return daemon.pools().parses.tasks() - before;
  };
  EXPECT_EQ(parses_of(15 * kKiB), 0u);
  EXPECT_EQ(parses_of(17 * kKiB), 2u) << "parsed, and copied into its request";
  EXPECT_EQ(parses_of(120 * kKiB), 2u);
  for (const char* path : {"/api/embed", "/v1/rerank"}) {
    const uint64_t before = daemon.pools().parses.tasks();
    EXPECT_EQ(daemon.Post(path, std::string(17 * kKiB, ' ')).status, 400);
    EXPECT_EQ(daemon.pools().parses.tasks() - before, 1u) << path;
  }
}

// 21 KiB for each delta.
std::vector<testing::Step> AnswerWithLogprobs(int deltas) {
  const api::TokenCandidate candidate{.bytes = "t", .id = 1, .logprob = -0.5F};
  const api::TokenLogprob token{candidate, std::vector<api::TokenCandidate>(20, candidate)};
  const api::TextDelta delta{"tttttttt", std::vector<api::TokenLogprob>(8, token), 8};
  std::vector<testing::Step> steps = {api::Event(api::PromptReady{3, 0})};
  for (int i = 0; i < deltas; ++i) steps.emplace_back(api::Event(delta));
  steps.emplace_back(api::Event(api::Finished{}));
  return steps;
}

struct AnswerLimits : public ::testing::Test {
  static TransportLimits Small() {
    TransportLimits limits;
    limits.connections = 8;
    limits.answer_bytes_max = 1024 * kKiB;
    limits.answers_bytes = 2 * 1024 * kKiB;  // of one client half
    return limits;
  }
  static json Chat(bool stream, int choices = 1) {
    return {{"model", "demo"},  {"messages", json::array({{{"role", "user"}, {"content", "x"}}})},
            {"logprobs", true}, {"top_logprobs", 20},
            {"stream", stream}, {"n", choices}};
  }
  uint64_t Collected() {
    uint64_t bytes = 0;
    daemon_.OnIoThread([&] { bytes = daemon_.server().collected_answers_bytes(); });
    return bytes;
  }
  void ExpectTooLarge(const char* path, const json& body) {
    const RawResponse refused = daemon_.Post(path, body.dump());
    EXPECT_EQ(refused.status, 413) << path;
    EXPECT_THAT(refused.body, HasSubstr("larger than 1048576 bytes, the limit of one that is sent whole"));
  }

  TestDaemon daemon_{Small()};
};

TEST_F(AnswerLimits, AnAnswerThatIsSentWholeHasABound) {
  daemon_.backend().script.events = AnswerWithLogprobs(40);
  const RawResponse whole = daemon_.Post("/v1/chat/completions", Chat(false).dump());
  EXPECT_EQ(json::parse(whole.body)["choices"][0]["logprobs"]["content"].size(), 320u);
  ExpectTooLarge("/v1/chat/completions", Chat(false, 2));
  daemon_.backend().script.events = AnswerWithLogprobs(60);
  ExpectTooLarge("/v1/chat/completions", Chat(false));
  ExpectTooLarge("/api/chat", Chat(false));
  ExpectTooLarge("/completion", {{"prompt", "x"}, {"n_probs", 20}});
  const std::string streamed = daemon_.Post("/v1/chat/completions", Chat(true).dump()).body;
  EXPECT_THAT(streamed, HasSubstr("[DONE]")) << "nothing of it is collected";
  while (Collected() > 0) std::this_thread::yield();
}

// A runner that was taken over chooses the size of all of it.
TEST_F(AnswerLimits, EverythingOfADeltaCounts) {
  api::TextDelta calls, pieces, ids;
  calls.tool_calls = {{std::string(64 * kKiB, 'i'), "f", "{}"}};
  pieces.logprobs = {{{std::string(64 * kKiB, 'b'), 7, -1}, {}}};
  ids.token_ids.assign(64 * kKiB, 7);
  for (const api::TextDelta& delta : {calls, pieces, ids}) {
    auto& events = daemon_.backend().script.events;
    events = {api::Event(api::PromptReady{3, 0})};
    for (int i = 0; i < 20; ++i) events.emplace_back(api::Event(delta));
    events.emplace_back(api::Event(api::Finished{}));
    ExpectTooLarge("/v1/chat/completions", Chat(false));
    ExpectTooLarge("/completion", {{"prompt", "x"}, {"n_probs", 20}});
  }
  while (Collected() > 0) std::this_thread::yield();
}

TEST_F(AnswerLimits, AStreamThatRepeatsItsAnswerHasTheSame) {
  auto& events = daemon_.backend().script.events;
  events = {api::Event(api::PromptReady{3, 0})};
  for (int i = 0; i < 6; ++i)
    events.emplace_back(api::Event(api::TextDelta{std::string(64 * kKiB, 't'), {}, 1}));
  events.emplace_back(api::Event(api::Finished{}));
  const std::string body =
      daemon_.Post("/v1/responses", R"({"model":"demo","input":"x","stream":true})").body;
  EXPECT_THAT(body, HasSubstr("the limit of one that is sent whole"));
  EXPECT_THAT(body, ::testing::Not(HasSubstr("response.completed")));
}

// 40 texts that are known, of 1,024 numbers: a body of a few hundred bytes.
TEST_F(AnswerLimits, VectorsHaveTheSame) {
  VectorCache cache;
  daemon_.OnIoThread([&] { daemon_.services().vectors = &cache; });
  api::Finished finished;
  finished.embedding = std::vector<float>(1024, 0.5F);
  daemon_.backend().script.events = {api::Event(api::PromptReady{3, 0}), api::Event(finished)};
  const auto texts = [](size_t count) {
    return json{{"model", "demo"}, {"input", std::vector<std::string>(count, "x")}};
  };
  EXPECT_EQ(daemon_.Post("/v1/embeddings", texts(40).dump()).status, 200);
  ExpectTooLarge("/v1/embeddings", texts(70));

  auto& events = daemon_.backend().script.events;
  events.insert(events.begin(), testing::Block{});
  json waiting = texts(40);
  waiting["input"][39] = "another";
  RawClient first(daemon_.port());
  first.Send(testing::PostBytes("/v1/embeddings", waiting.dump()));
  daemon_.backend().blocked.get_future().wait();
  EXPECT_GT(Collected(), 600 * kKiB);
  const RawResponse second = daemon_.Post("/v1/embeddings", texts(40).dump());
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.at("retry-after"), "1");
  daemon_.OnIoThread([&] { daemon_.backend().Release(); });
  EXPECT_EQ(first.Read().status, 200);
  while (Collected() > 0) std::this_thread::yield();
}

TEST_F(AnswerLimits, DocumentsThatAreReturnedHaveTheSame) {
  api::Finished finished;
  finished.embedding = {0.5F};
  daemon_.backend().script.events = {api::Event(api::PromptReady{3, 0}), api::Event(finished)};
  ExpectTooLarge("/v1/rerank", {{"model", "demo"},
                                {"query", "q"},
                                {"documents", {std::string(1030 * kKiB, 'd')}},
                                {"return_documents", true}});
}

TEST_F(AnswerLimits, ADescriptionHasTheSame) {
  auto& inspected = daemon_.backend().script.inspected;
  inspected.model_info_json = json{{"tokens", std::string(1100 * kKiB, 't')}}.dump();
  ExpectTooLarge("/api/show", {{"model", "demo"}, {"verbose", true}});
  EXPECT_EQ(daemon_.Post("/api/show", R"({"model":"demo"})").status, 200);
}

TEST_F(AnswerLimits, OnePartysAnswersLeaveRoomForOthers) {
  auto& events = daemon_.backend().script.events;
  events = AnswerWithLogprobs(40);
  events.insert(events.end() - 1, testing::Block{});
  RawClient first(daemon_.port());
  first.Send(testing::PostBytes("/v1/chat/completions", Chat(false).dump()));
  daemon_.backend().blocked.get_future().wait();
  EXPECT_GT(Collected(), 800 * kKiB);
  const RawResponse second = daemon_.Post("/v1/chat/completions", Chat(false).dump());
  EXPECT_EQ(second.status, 429);
  EXPECT_EQ(second.headers.at("retry-after"), "1");
  EXPECT_THAT(second.body, HasSubstr("too many large answers of this client in memory"));
  daemon_.OnIoThread([&] { daemon_.backend().Release(); });
  EXPECT_EQ(first.Read().status, 200);
  while (Collected() > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace quire::server
