// The embedding routes through the front door, over a scripted scheduler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawResponse;
using testing::TestDaemon;

std::vector<testing::Step> Vector(std::vector<float> values) {
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}};
  finished.usage.prompt_tokens = 3;
  finished.embedding = std::move(values);
  return {api::Event(api::PromptReady{3, 0}), api::Event(finished)};
}

TEST(EmbeddingRoutes, OllamaEmbedsEveryText) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({0.5F, -0.25F});
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back("text " + std::to_string(i));
  const RawResponse response =
      daemon.Post("/api/embed", json{{"model", "Demo"}, {"input", texts}, {"keep_alive", "7m"}}.dump(),
                  "Authorization: Bearer k\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  const json reply = json::parse(response.body);
  EXPECT_EQ(reply["model"], "Demo");
  EXPECT_EQ(reply["embeddings"], json(std::vector<std::vector<float>>(40, {0.5F, -0.25F})));
  EXPECT_EQ(reply["prompt_eval_count"], 120);
  EXPECT_EQ(reply["load_duration"], 3000000);
  const auto& seen = daemon.backend().seen;
  ASSERT_EQ(seen.requests.size(), 40U);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(std::get<api::EmbedPrompt>(seen.requests[i].prompt).text, texts[i]);
    EXPECT_FALSE(seen.requests[i].client.tenant.empty());
    EXPECT_EQ(seen.keep_alives[i], 7min);
  }
}

// The sanitizers look at the log's sum, which has less room than the reply's.
TEST(EmbeddingRoutes, ManyTokensOfManyTextsAreCounted) {
  TestDaemon daemon;
  auto events = Vector({1});
  std::get<api::Finished>(std::get<api::Event>(events.back())).usage.prompt_tokens = 16'000'000;
  daemon.backend().script.events = events;
  const RawResponse response = daemon.Post(
      "/v1/embeddings", json{{"model", "demo"}, {"input", std::vector<std::string>(200, "x")}}.dump());
  EXPECT_EQ(json::parse(response.body)["usage"]["prompt_tokens"], int64_t{200} * 16'000'000);
}

TEST(EmbeddingRoutes, TextsWhosePlacesOthersGetAreTriedAgain) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({1});
  for (size_t i = 20; i < 34; ++i) daemon.backend().script.displaced.insert(i);
  const std::string body = json{{"model", "demo"}, {"input", std::vector<std::string>(40, "x")}}.dump();
  const RawResponse response = daemon.Post("/v1/embeddings", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(json::parse(response.body)["data"].size(), 40U);
  EXPECT_EQ(daemon.backend().seen.requests.size(), 54U);
  for (size_t i = 54; i < 200; ++i) daemon.backend().script.displaced.insert(i);
  EXPECT_EQ(daemon.Post("/v1/embeddings", body).status, 503) << "it does not try forever";
  daemon.backend().script.displaced_text = "the request timed out in the queue";
  const size_t before = daemon.backend().seen.requests.size();
  for (size_t i = before; i < before + 100; ++i) daemon.backend().script.displaced.insert(i);
  EXPECT_EQ(daemon.Post("/v1/embeddings", R"({"model":"demo","input":"y"})").status, 503);
  EXPECT_EQ(daemon.backend().seen.requests.size(), before + 1) << "it has waited long enough";
}

TEST(EmbeddingRoutes, EveryTextHasTheSaltOfItsRequest) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({1});
  EXPECT_EQ(
      daemon.Post("/v1/embeddings", R"({"model":"demo","input":["a","b"],"cache_salt":"pepper"})").status,
      200);
  const auto& seen = daemon.backend().seen;
  ASSERT_EQ(seen.requests.size(), 2U);
  for (const api::Request& request : seen.requests) EXPECT_EQ(request.client.cache_salt, "pepper");
}

TEST(EmbeddingRoutes, LegacyAndOpenAiHaveShapesOfTheirOwn) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({3, 4});
  EXPECT_EQ(daemon.Post("/api/embeddings", R"({"model":"demo","prompt":"x"})").body,
            R"({"embedding":[3,4]})");
  EXPECT_FALSE(std::get<api::EmbedPrompt>(daemon.backend().seen.requests[0].prompt).normalize);
  const json reply =
      json::parse(daemon.Post("/v1/embeddings", R"({"model":"demo","input":[[1,2],[3]]})").body);
  EXPECT_EQ(reply["data"].size(), 2U);
  EXPECT_EQ(reply["usage"]["total_tokens"], 6);
}

TEST(EmbeddingRoutes, CohereHasShapesOfItsOwnForErrorsToo) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({3, 4});
  const json reply = json::parse(
      daemon.Post("/v2/embed", R"({"model":"demo","texts":["x"],"input_type":"search_query"})").body);
  EXPECT_EQ(reply["embeddings"]["float"], json::parse("[[3.0,4.0]]"));
  const RawResponse missing = daemon.Post("/v2/embed", R"({"model":"demo","texts":["x"]})");
  EXPECT_EQ(missing.status, 400);
  EXPECT_THAT(json::parse(missing.body)["message"].get<std::string>(), HasSubstr("input_type"));
  EXPECT_TRUE(json::parse(daemon.Post("/v2/rerank", "{}").body)["message"].is_string());
  EXPECT_TRUE(json::parse(daemon.Post("/rerank", "{}").body)["error"]["message"].is_string());
}

TEST(EmbeddingRoutes, TextEmbeddingsInferenceNeedsNoModelsName) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({3, 4});
  EXPECT_EQ(daemon.Post("/embed", R"({"inputs":["x","y"]})").body, "[[3,4],[3,4]]");
  daemon.backend().script.events = {
      api::Event(api::Failed{{api::ErrorCode::kUnsupported, "input_type: no prefix \"q\"", "input_type"}})};
  const RawResponse refused = daemon.Post("/embed", R"({"inputs":"x","prompt_name":"q"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"], "prompt_name: no prefix \"q\"");
}

TEST(EmbeddingRoutes, WithoutATextTheModelIsLoaded) {
  TestDaemon daemon;
  const json reply =
      json::parse(daemon.Post("/api/embed", R"({"model":"demo","input":[],"keep_alive":60})").body);
  EXPECT_EQ(reply["embeddings"], json::array());
  EXPECT_EQ(daemon.backend().seen.loads, 1);
  EXPECT_EQ(daemon.backend().seen.keep_alives[0], 60s);
}

TEST(EmbeddingRoutes, AFailureNamesTheTextInTheDialectsWords) {
  TestDaemon daemon;
  daemon.backend().script.events = {
      api::Event(api::Failed{{api::ErrorCode::kContextLengthExceeded, "too long", "input"}})};
  const RawResponse ollama_reply =
      daemon.Post("/api/embed", R"({"model":"demo","input":["a","b"],"truncate":false})");
  EXPECT_EQ(ollama_reply.status, 400);
  EXPECT_EQ(json::parse(ollama_reply.body)["error"], "input[0]: too long");
  const RawResponse openai = daemon.Post("/v1/embeddings", R"({"model":"demo","input":"a"})");
  EXPECT_EQ(openai.status, 400);
  EXPECT_EQ(json::parse(openai.body)["error"]["message"], "too long");
  EXPECT_EQ(json::parse(openai.body)["error"]["param"], "input");
  daemon.backend().script.submit_error = api::Error{api::ErrorCode::kOverloaded, "server busy"};
  EXPECT_EQ(daemon.Post("/api/embeddings", R"({"model":"demo","prompt":"a"})").status, 503);
}

TEST(EmbeddingRoutes, AClientThatLeavesEndsTheWork) {
  TestDaemon daemon;
  daemon.backend().script.events = {testing::Block{},
                                    api::Event(api::Failed{{api::ErrorCode::kInternal, "no"}})};
  const auto blocked = daemon.backend().blocked.get_future();
  const auto abandoned = daemon.backend().abandoned.get_future();
  {
    testing::RawClient client(daemon.port());
    client.Send(testing::PostBytes("/api/embed", R"({"model":"demo","input":"x"})"));
    blocked.wait();
  }
  EXPECT_EQ(abandoned.wait_for(30s), std::future_status::ready);
}

TEST(EmbeddingRoutes, TheOnlyModelThatEmbedsNeedsNoName) {
  TestDaemon daemon;
  daemon.OnIoThread([&] {
    scheduler::LoadedModel chat, other;
    chat.spec.name = "chat:latest";
    other.spec.name = "other:latest";
    daemon.backend().script.loaded = {chat, other};
    daemon.backend().script.events = Vector({0.5F, 1});
  });
  EXPECT_EQ(daemon.Post("/embed", R"({"inputs":"a"})").status, 400);  // "demo" does not embed
  TestDaemon embeds;
  embeds.OnIoThread([&] {
    embeds.backend().script.loaded = daemon.backend().script.loaded;
    embeds.backend().script.inspected.capabilities = {"embedding"};
    embeds.backend().script.events = Vector({0.5F, 1});
  });
  for (const char* path : {"/embed", "/"}) {
    const RawResponse reply = embeds.Post(path, R"({"inputs":["a","b"],"normalize":false,"truncate":true})");
    EXPECT_EQ(reply.status, 200) << path << reply.body;
    EXPECT_EQ(json::parse(reply.body), json::parse("[[0.5,1.0],[0.5,1.0]]"));
  }
  EXPECT_EQ(embeds.backend().seen.submitted.at(0).name, "demo:latest");
  EXPECT_EQ(embeds.Post("/embedding", R"({"content":"a"})").status, 200);
  EXPECT_EQ(embeds.Get("/").body, "Ollama is running");
}

TEST(EmbedRoutes, TheRootGeneratesTextWithParameters) {
  TestDaemon daemon;  // with one model, which completes
  api::TextDelta delta;
  delta.text = "yes";
  delta.tokens = 1;
  daemon.backend().script.events = {api::Event(api::PromptReady{3, 0}), api::Event(delta),
                                    api::Event(api::Finished{})};
  const RawResponse whole = daemon.Post("/", R"({"inputs":"Say","parameters":{"max_new_tokens":5}})");
  EXPECT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(json::parse(whole.body), json::parse(R"([{"generated_text":"yes"}])"));
  EXPECT_EQ(daemon.backend().seen.submitted.at(0).name, "demo:latest");
  const RawResponse streamed = daemon.Post("/", R"({"inputs":"Say","stream":true})");
  EXPECT_EQ(streamed.headers.at("content-type"), "text/event-stream");
  EXPECT_NE(streamed.body.find("\"generated_text\":\"yes\""), std::string::npos) << streamed.body;
  const RawResponse chat =
      daemon.Post("/v1/chat/completions", R"({"model":"dummy","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(json::parse(chat.body).at("model"), "demo:latest");
}

TEST(EmbeddingRoutes, TextEmbeddingsInferenceDescribesTheModel) {
  for (const char* capability : {"embedding", "rerank", "completion"}) {  // decoders embed, too
    TestDaemon embeds;
    embeds.OnIoThread([&] {
      embeds.backend().script.inspected.capabilities = {capability};
      embeds.backend().script.inspected.num_ctx = 512;
    });
    const RawResponse reply = embeds.Get("/info");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json info = json::parse(reply.body);
    EXPECT_EQ(info["model_id"], "demo:latest");
    EXPECT_FALSE(info["model_sha"].get<std::string>().empty());
    EXPECT_TRUE(info["model_dtype"].is_string());
    EXPECT_TRUE(info["model_type"].contains(capability == std::string("rerank") ? "reranker" : "embedding"));
    EXPECT_EQ(info["max_input_length"], 512);
    EXPECT_EQ(info["max_client_batch_size"], 2048);
    EXPECT_EQ(info["auto_truncate"], false);
    EXPECT_EQ(info["version"], QUIRE_VERSION);
  }
}

TEST(RerankRoutes, EveryDocumentIsScoredWithTheQuery) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({0.0F});
  for (const char* path : {"/v1/rerank", "/reranking", "/v2/rerank"}) {
    const RawResponse response = daemon.Post(
        path, R"({"model":"demo","query":"q","documents":["a",{"text":"b"}],"return_documents":true})");
    ASSERT_EQ(response.status, 200) << path << response.body;
    const json reply = json::parse(response.body);
    ASSERT_EQ(reply["results"].size(), 2U);
    EXPECT_EQ(reply["results"][0]["relevance_score"], 0.5);
    EXPECT_EQ(reply["results"][1]["document"]["text"], "b");
  }
  const auto& seen = daemon.backend().seen;
  ASSERT_EQ(seen.requests.size(), 6U);
  const auto& pair = std::get<api::EmbedPrompt>(seen.requests[1].prompt);
  EXPECT_TRUE(pair.rank);
  EXPECT_EQ(pair.text, "q");
  EXPECT_EQ(pair.document, "b");
}

TEST(RerankRoutes, ARunnerWithoutAScoreIsAnError) {
  TestDaemon daemon;
  for (const std::vector<float>& scores : {std::vector<float>{}, {1, 2}}) {
    daemon.backend().script.events = Vector(scores);
    EXPECT_EQ(daemon.Post("/v1/rerank", R"({"model":"demo","query":"q","documents":["a"]})").status, 500);
  }
}

TEST(RerankRoutes, ScoresKeepTheOrderOfTheBody) {
  TestDaemon daemon;
  daemon.backend().script.events = Vector({0.0F});
  const json reply = json::parse(
      daemon.Post("/v1/score", R"({"model":"demo","text_1":"q","text_2":["a","b"],"raw_scores":true})").body);
  EXPECT_EQ(reply["data"].size(), 2U);
  EXPECT_EQ(reply["data"][1]["score"], 0.0);
  EXPECT_EQ(reply["usage"]["prompt_tokens"], 6);
}

TEST(RerankRoutes, ErrorsAreThoseOfTheDialect) {
  TestDaemon daemon;
  const RawResponse missing =
      daemon.Post("/v1/rerank", R"({"model":"nobody","query":"q","documents":["a"]})");
  EXPECT_EQ(missing.status, 404);
  daemon.backend().script.events = {
      api::Event(api::Failed{{api::ErrorCode::kUnsupported, "this model does not rank texts", "model"}})};
  const RawResponse refused = daemon.Post("/v1/rerank", R"({"model":"demo","query":"q","documents":["a"]})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("does not rank"));
}

}  // namespace
}  // namespace quire::server
