// The routes of llama.cpp's server through the front door, over a scripted scheduler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TestDaemon;

class LlamaServerRoutes : public ::testing::Test {
 protected:
  LlamaServerRoutes() {
    api::Finished finished{
        .reason = api::FinishReason::kStop, .stop_string = {}, .usage = {10, 4, 2, 1, 2'000'000, 3'000'000}};
    finished.context = {1, 2, 3, 4, 5};
    api::TextDelta delta{"hi\n", {}, 2};
    delta.token_ids = {4, 5};
    daemon_.backend().script.events = {api::Event(api::PromptReady{10, 4}), api::Event(delta),
                                       api::Event(finished)};
  }

  const api::Request& LastRequest() { return daemon_.backend().seen.requests.back(); }

  TestDaemon daemon_;
};

TEST_F(LlamaServerRoutes, CompletionAnswersInItsOwnShape) {
  for (const char* path : {"/completion", "/completions"}) {
    const auto reply = daemon_.Post(
        path, R"({"prompt":"Once","n_predict":3,"temperature":0,"return_tokens":true,"stop":["x"]})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json body = json::parse(reply.body);
    EXPECT_EQ(body["content"], "hi\n");
    EXPECT_EQ(body["tokens"], (json{4, 5}));
    EXPECT_EQ(body["stop"], true);
    EXPECT_EQ(body["stop_type"], "eos");
    EXPECT_EQ(body["prompt"], "Once");
    EXPECT_EQ(body["model"], "demo:latest");
    EXPECT_EQ(body["tokens_predicted"], 2);
    EXPECT_EQ(body["tokens_evaluated"], 10);
    EXPECT_EQ(body["tokens_cached"], 4);
    EXPECT_EQ(body["has_new_line"], true);
    EXPECT_EQ(body["timings"]["prompt_n"], 6);
    EXPECT_EQ(body["timings"]["prompt_ms"], 2.0);
    EXPECT_EQ(body["timings"]["predicted_per_second"], 2e6 / 3000);
    EXPECT_EQ(body["generation_settings"]["n_predict"], 3);
    EXPECT_EQ(body["generation_settings"]["top_k"], 7) << "the model's parameter";
    EXPECT_EQ(LastRequest().params.num_predict, 3);
    EXPECT_EQ(std::get<api::RawPrompt>(LastRequest().prompt).text, "Once");
  }
}

TEST_F(LlamaServerRoutes, StreamsEndWithTheWholeObjectAndNoMark) {
  const auto reply = daemon_.Post("/completion", R"({"prompt":"Once","stream":true})");
  EXPECT_THAT(reply.body, HasSubstr(R"("content":"hi\n","tokens":[4,5],"stop":false)"));
  EXPECT_THAT(reply.body, HasSubstr(R"("stop":true)"));
  EXPECT_THAT(reply.body, HasSubstr(R"("timings")"));
  EXPECT_THAT(reply.body, ::testing::Not(HasSubstr("[DONE]")));
}

TEST_F(LlamaServerRoutes, ResponseFieldsSelectMembersByTheirPaths) {
  const auto reply = daemon_.Post(
      "/infill",
      R"({"input_prefix":"a","input_suffix":"b","response_fields":["content","timings/prompt_n","no/such"]})");
  EXPECT_EQ(json::parse(reply.body), (json{{"content", "hi\n"}, {"timings/prompt_n", 6}}));
  EXPECT_EQ(daemon_.Post("/infill", R"({"prompt":"","n_predict":0,"response_fields":[""]})").body, "{}");
}

TEST_F(LlamaServerRoutes, InfillTakesWhatEditorsSend) {
  const auto reply = daemon_.Post(
      "/infill",
      R"({"input_prefix":"int f() {\n","input_suffix":"}\n","input_extra":[{"text":"int g;","time":5,"filename":"g.h"}],)"
      R"("prompt":"  ret","n_predict":128,"n_indent":2,"top_k":40,"top_p":0.99,"stream":false,)"
      R"("samplers":["top_k","top_p","infill"],"cache_prompt":true,"t_max_prompt_ms":500,"t_max_predict_ms":1000})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const api::Request& request = LastRequest();
  const auto& fim = std::get<api::FimPrompt>(request.prompt);
  EXPECT_EQ(fim.prefix, "int f() {\n  ret");
  EXPECT_EQ(fim.suffix, "}\n");
  ASSERT_EQ(fim.files.size(), 1U);
  EXPECT_EQ(fim.files[0].name, "g.h");
  EXPECT_EQ(request.predict_ms_max, 1000);
  EXPECT_EQ(request.indent_min, 2);
  EXPECT_EQ(request.overflow, api::Overflow::kTruncate);
  EXPECT_EQ(request.params.min_p, 0) << "not among the samplers";
  EXPECT_EQ(request.params.top_k, 40);
}

TEST_F(LlamaServerRoutes, PromptsOfTextsAndIds) {
  daemon_.Post("/completion", R"({"prompt":[1,2,"b",3]})");
  const auto& mixed = std::get<api::MixedPrompt>(LastRequest().prompt);
  ASSERT_EQ(mixed.pieces.size(), 3U);
  EXPECT_THAT(mixed.pieces[0].tokens, ElementsAre(1, 2));
  EXPECT_EQ(mixed.pieces[1].text, "b");
  EXPECT_THAT(mixed.pieces[2].tokens, ElementsAre(3));
  daemon_.Post("/completion", R"({"prompt":[7,8]})");
  EXPECT_THAT(std::get<api::TokenPrompt>(LastRequest().prompt).tokens, ElementsAre(7, 8));
  const json list = json::parse(daemon_.Post("/completion", R"({"prompt":["a",[7,"c"]],"n_cmpl":2})").body);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[3]["index"], 3);
  EXPECT_EQ(list[1]["prompt"], "a");
}

TEST_F(LlamaServerRoutes, OpenAiPathsWithoutVersionNeedNoModelAndHaveTimings) {
  const auto chat = daemon_.Post("/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(json::parse(chat.body)["model"], "demo:latest");
  EXPECT_EQ(json::parse(chat.body)["timings"]["cache_n"], 4);
  const auto stream = daemon_.Post(
      "/chat/completions", R"({"model":"demo","stream":true,"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_THAT(stream.body, HasSubstr(R"("finish_reason":"stop"}],"timings")"));
  EXPECT_EQ(json::parse(daemon_.Post("/responses", R"({"input":"hi"})").body)["object"], "response");
  EXPECT_EQ(daemon_.Get("/models").body, daemon_.Get("/v1/models").body);
  const auto versioned =
      daemon_.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(versioned.status, 400);
  EXPECT_FALSE(json::parse(daemon_
                               .Post("/v1/chat/completions",
                                     R"({"model":"demo","messages":[{"role":"user","content":"hi"}]})")
                               .body)
                   .contains("timings"));
}

TEST_F(LlamaServerRoutes, FormatsAreCompiledByTheRunner) {
  daemon_.Post("/completion", R"({"prompt":"a","grammar":"root ::= \"x\"","json_schema":null})");
  EXPECT_EQ(LastRequest().format->kind, api::OutputFormat::Kind::kGrammar);
  EXPECT_EQ(LastRequest().format->text, "root ::= \"x\"");
  EXPECT_EQ(LastRequest().format->field, "grammar");
  daemon_.Post("/completion", R"({"prompt":"a","grammar":"","json_schema":{"type":"integer"}})");
  EXPECT_EQ(LastRequest().format->kind, api::OutputFormat::Kind::kSchema);
  daemon_.Post("/chat/completions",
               R"({"messages":[{"role":"user","content":"a"}],"grammar":"root ::= \"x\""})");
  EXPECT_EQ(LastRequest().format->kind, api::OutputFormat::Kind::kGrammar);
  const auto both =
      daemon_.Post("/completion", R"({"prompt":"a","grammar":"root ::= \"x\"","json_schema":{}})");
  EXPECT_EQ(both.status, 400);
}

TEST_F(LlamaServerRoutes, FieldsThatWouldChangeTheAnswerAreRefusedByName) {
  for (const std::string field :
       {R"("lora":[{"id":0,"scale":1}])", R"("grammar_lazy":true)", R"("post_sampling_probs":true)",
        R"("dynatemp_range":0.5)", R"("min_keep":2)", R"("logit_bias":[["Hello",1]])"}) {
    const auto reply = daemon_.Post("/completion", R"({"prompt":"a",)" + field + "}");
    EXPECT_EQ(reply.status, 400) << field;
    const std::string name = field.substr(1, field.find('"', 1) - 1);
    EXPECT_THAT(json::parse(reply.body)["error"]["message"].get<std::string>(), HasSubstr(name));
    EXPECT_EQ(json::parse(reply.body)["error"]["param"], name);
  }
  for (const std::string body :
       {"{}", R"({"prompt":{}})", R"({"prompt":[]})", R"({"prompt":[[]]})", R"({"prompt":[1,-1]})",
        R"({"prompt":"a","n_probs":1001})", R"({"prompt":"a","id_slot":256})",
        R"({"prompt":"a","samplers":"x"})", R"({"prompt":"a","logit_bias":[[1,true]]})",
        R"({"prompt":"a","logit_bias":[[1,1e9]]})", R"({"prompt":"a","json_schema":[]})",
        R"({"prompt":"a","t_max_predict_ms":"soon"})"}) {
    EXPECT_EQ(daemon_.Post("/completion", body).status, 400) << body;
  }
  EXPECT_EQ(daemon_.Post("/completion", R"({"prompt":"a","model":"none"})").status, 404);
}

TEST_F(LlamaServerRoutes, SlotsAreSavedRestoredAndErased) {
  EXPECT_EQ(daemon_.Post("/slots/0?action=save", R"({"filename":"a"})").status, 404);
  daemon_.Post("/completion", R"({"prompt":"a"})");
  json reply = json::parse(daemon_.Post("/slots/0?action=save", R"({"filename":"a"})").body);
  EXPECT_EQ(reply["id_slot"], 0);
  EXPECT_EQ(reply["filename"], "a");
  EXPECT_EQ(reply["n_saved"], 4) << "prompt and answer but for the last token";
  EXPECT_TRUE(LastRequest().restore_point);
  EXPECT_EQ(LastRequest().params.num_predict, 0);
  EXPECT_THAT(std::get<api::TokenPrompt>(LastRequest().prompt).tokens, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(json::parse(daemon_.Post("/slots/0?action=erase", "").body),
            (json{{"id_slot", 0}, {"n_erased", 4}}));
  EXPECT_EQ(json::parse(daemon_.Post("/slots/0?action=erase", "").body)["n_erased"], 0);
  reply = json::parse(daemon_.Post("/slots/3?action=restore", R"({"filename":"a"})").body);
  EXPECT_EQ(reply["n_restored"], 4);
  EXPECT_EQ(json::parse(daemon_.Post("/slots/3?action=erase", "").body)["n_erased"], 4);
  for (const char* path :
       {"/slots/0?action=load", "/slots/x?action=save", "/slots/256?action=save", "/slots/0"}) {
    EXPECT_EQ(daemon_.Post(path, R"({"filename":"a"})").status, 400) << path;
  }
  for (const char* body : {"{}", R"({"filename":"a/b"})", R"({"filename":""})", R"({"filename":".."})"}) {
    EXPECT_EQ(daemon_.Post("/slots/0?action=restore", body).status, 400) << body;
  }
  const auto absent = daemon_.Post("/slots/0?action=restore", R"({"filename":"b"})");
  EXPECT_EQ(absent.status, 404);
  EXPECT_EQ(json::parse(absent.body)["error"]["message"], "snapshot 'b' not found");
}

// A daemon that has just started still reads the folder, and nobody may lose a snapshot by that.
TEST_F(LlamaServerRoutes, ASlotWaitsUntilItsFilesAreRead) {
  int looks = 0;
  std::vector<std::string> asked;
  daemon_.OnIoThread([&] {
    SlotFiles& files = daemon_.services().slot_files;
    files.ready = [&] { return ++looks % 3 == 0; };
    files.read = [&](const SlotOwner&, const std::string& name) -> api::Result<std::optional<SlotPrefix>> {
      asked.push_back("read " + name);
      return SlotPrefix{{1, 2, 3, 4}};
    };
    files.write = [&](const SlotOwner&, const std::string& name, const SlotPrefix&) -> api::Result<void> {
      asked.push_back("write " + name);
      return {};
    };
  });
  EXPECT_EQ(daemon_.Post("/slots/0?action=restore", R"({"filename":"a","model":"demo"})").status, 200);
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(daemon_.Post("/slots/0?action=save", R"({"filename":"b","model":"demo"})").status, 200);
  EXPECT_EQ(looks, 6);
  EXPECT_THAT(asked, ElementsAre("read a", "write b"));
}

TEST_F(LlamaServerRoutes, OfOtherCredentialsSlotsAreEmpty) {
  daemon_.Post("/completion", R"({"prompt":"a"})", "Authorization: Bearer one\r\n");
  const auto other =
      daemon_.Post("/slots/0?action=save", R"({"filename":"a"})", "Authorization: Bearer two\r\n");
  EXPECT_EQ(other.status, 404);
}

TEST_F(LlamaServerRoutes, Embeddings) {
  api::Finished finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {3, 0, 0}};
  finished.embedding = {0.5F, 1};
  daemon_.OnIoThread([&] {
    daemon_.backend().script.events = {api::Event(api::PromptReady{3, 0}), api::Event(finished)};
  });
  for (const char* path : {"/embedding", "/embeddings"}) {
    const auto reply = daemon_.Post(path, R"({"content":"a"})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(json::parse(reply.body), json::parse(R"([{"index":0,"embedding":[[0.5,1.0]]}])"));
  }
  const json two =
      json::parse(daemon_.Post("/embeddings", R"({"input":["a",[1,2]],"embd_normalize":-1})").body);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_FALSE(std::get<api::EmbedPrompt>(LastRequest().prompt).normalize);
  EXPECT_EQ(daemon_.Post("/embedding", R"({"content":"a","embd_normalize":1})").status, 400);
  EXPECT_EQ(daemon_.Post("/embedding", "{}").status, 400);
}

TEST_F(LlamaServerRoutes, PropsDescribeTheDefaults) {
  scheduler::LoadedModel loaded;
  loaded.spec = {"key", "demo:latest", "w"};
  loaded.num_ctx = 512;
  daemon_.OnIoThread([&] { daemon_.backend().script.loaded = {loaded}; });
  const json props = json::parse(daemon_.Get("/props").body);
  EXPECT_GE(props["total_slots"], 1);
  const json& params = props["default_generation_settings"]["params"];
  EXPECT_EQ(params["temperature"], 0.5) << "the model's parameter";
  EXPECT_EQ(params["n_predict"], -1);
  EXPECT_EQ(props["modalities"]["vision"], false);
}

}  // namespace
}  // namespace quire::server
