// Golden transcripts of the Ollama dialect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/base/timestamp.h"
#include "api/ollama/chat.h"
#include "api/ollama/lists.h"

namespace quire::api::ollama {
namespace {

using namespace std::chrono_literals;

const std::chrono::system_clock::time_point kNow{std::chrono::seconds(1785585600) + 42us};
const EventContext kContext{.now = kNow, .total = 5ms, .load = 1ms};
const std::string kHead = R"("model":"M","created_at":"2026-08-01T12:00:00.000042Z",)";

Finished Done() {
  Finished finished;
  finished.usage = {20, 12, 3, 100, 2'000'000, 1'500'000};
  return finished;
}

std::string Transcribe(ChatEncoder& encoder, const std::vector<Event>& events) {
  std::string out;
  for (const Event& event : events) out += encoder.OnEvent(event, kContext);
  return out;
}

const std::vector<Event> kStory = {PromptReady{20, 12}, TextDelta{"Hé", {}, 1}, TextDelta{"", {}, 1},
                                   TextDelta{"\"\n", {}, 1}, Done()};
const std::string kMetrics =
    R"("total_duration":5000000,"load_duration":1000000,"prompt_eval_count":20,"prompt_eval_cached_count":12,)"
    R"("prompt_eval_duration":2000000,"eval_count":3,"eval_duration":1500000)";

TEST(OllamaReply, GenerateStream) {
  ChatEncoder encoder(Endpoint::kGenerate, "M", true);
  EXPECT_EQ(Transcribe(encoder, kStory), "{" + kHead + R"("response":"Hé","done":false})" + "\n" +  //
                                             "{" + kHead + R"("response":"\"\n","done":false})" + "\n" + "{" +
                                             kHead + R"("response":"","done":true,"done_reason":"stop",)" +
                                             kMetrics + "}\n");
}

TEST(OllamaReply, ChatStream) {
  ChatEncoder encoder(Endpoint::kChat, "M", true);
  EXPECT_EQ(Transcribe(encoder, kStory),
            "{" + kHead + R"("message":{"role":"assistant","content":"Hé"},"done":false})" + "\n" +  //
                "{" + kHead + R"("message":{"role":"assistant","content":"\"\n"},"done":false})" + "\n" +
                "{" + kHead +
                R"("message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",)" +
                kMetrics + "}\n");
}

const std::vector<Event> kCalls = {
    PromptReady{20, 12}, TextDelta{.text = "", .tokens = 1, .thinking = "hm"},
    TextDelta{.text = "Ok", .tokens = 1, .tool_calls = {{"c1", "f", R"({"b":1,"a":[2]})"}}},
    TextDelta{.text = "", .tokens = 1, .tool_calls = {{"c2", "g", "{}"}}}, Done()};

TEST(OllamaReply, ThinkingAndCallsHaveFieldsOfTheirOwn) {
  ChatEncoder encoder(Endpoint::kChat, "M", true);
  const std::string message = R"("message":{"role":"assistant","content":)";
  EXPECT_EQ(
      Transcribe(encoder, kCalls),
      "{" + kHead + message + R"("","thinking":"hm"},"done":false})" + "\n{" + kHead + message +
          R"("Ok","tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"b":1,"a":[2]}}}]},)" +
          R"("done":false})" + "\n{" + kHead + message +
          R"("","tool_calls":[{"id":"c2","function":{"index":1,"name":"g","arguments":{}}}]},"done":false})" +
          "\n{" + kHead + message + R"(""},"done":true,"done_reason":"stop",)" + kMetrics + "}\n");
  ChatEncoder whole(Endpoint::kChat, "M", false);
  const auto reply = nlohmann::json::parse(Transcribe(whole, kCalls));
  EXPECT_EQ(reply["message"]["thinking"], "hm");
  EXPECT_EQ(reply["message"]["content"], "Ok");
  EXPECT_EQ(reply["message"]["tool_calls"][1]["function"]["index"], 1);
  EXPECT_EQ(reply["done_reason"], "stop");
  ChatEncoder generate(Endpoint::kGenerate, "M", false);
  const auto generated = nlohmann::json::parse(Transcribe(generate, kCalls));
  EXPECT_EQ(generated["thinking"], "hm");
  EXPECT_EQ(generated["response"], "Ok");
}

TEST(OllamaReply, ProgressOfThePromptIsForStreamsThatAskForIt) {
  const std::vector<Event> story = {PromptReady{20, 12}, PrefillProgress{16}, TextDelta{"H", {}, 1}};
  ChatEncoder chat(Endpoint::kChat, "M", true, true);
  const std::string line = "{" + kHead + R"("message":{"role":"assistant","content":""},"done":false,)";
  EXPECT_EQ(Transcribe(chat, story),
            line + R"("prompt_progress":{"total":20,"cache":12,"processed":12,"time_ms":0}})" + "\n" + line +
                R"("prompt_progress":{"total":20,"cache":12,"processed":16,"time_ms":0}})" + "\n" + "{" +
                kHead + R"("message":{"role":"assistant","content":"H"},"done":false})" + "\n");
  ChatEncoder later(Endpoint::kGenerate, "M", true, true);
  later.OnEvent(PromptReady{20, 12}, {.now = kNow, .total = 5ms});
  const auto reply = nlohmann::json::parse(later.OnEvent(PrefillProgress{16}, {.now = kNow, .total = 47ms}));
  EXPECT_EQ(reply["prompt_progress"]["time_ms"], 42);
  ChatEncoder silent(Endpoint::kGenerate, "M", true);
  EXPECT_EQ(silent.OnEvent(PromptReady{20, 12}, kContext) + silent.OnEvent(PrefillProgress{16}, kContext),
            "");
  ChatEncoder whole(Endpoint::kGenerate, "M", false, true);
  EXPECT_EQ(whole.OnEvent(PromptReady{20, 12}, kContext) + whole.OnEvent(PrefillProgress{16}, kContext), "");
}

TEST(OllamaReply, ADeltaWithoutTextKeepsASilentStreamOpen) {
  ChatEncoder chat(Endpoint::kChat, "M", true);
  EXPECT_EQ(chat.keep_alive(), "");
  EXPECT_EQ(chat.OnEvent(PromptReady{20, 12}, kContext), "");
  EXPECT_EQ(chat.keep_alive(),
            "{" + kHead + R"("message":{"role":"assistant","content":""},"done":false})" + "\n");
  ChatEncoder generate(Endpoint::kGenerate, "M", true);
  generate.OnEvent(PromptReady{20, 12}, kContext);
  EXPECT_EQ(generate.keep_alive(), "{" + kHead + R"("response":"","done":false})" + "\n");
  ChatEncoder whole(Endpoint::kChat, "M", false);
  whole.OnEvent(PromptReady{20, 12}, kContext);
  EXPECT_EQ(whole.keep_alive(), "");
}

TEST(OllamaReply, WholeReplies) {
  ChatEncoder generate(Endpoint::kGenerate, "M", false);
  EXPECT_EQ(Transcribe(generate, kStory),
            "{" + kHead + R"("response":"Hé\"\n","done":true,"done_reason":"stop",)" + kMetrics + "}");
  ChatEncoder chat(Endpoint::kChat, "M", false);
  EXPECT_EQ(Transcribe(chat, kStory),
            "{" + kHead +
                R"("message":{"role":"assistant","content":"Hé\"\n"},"done":true,"done_reason":"stop",)" +
                kMetrics + "}");
}

TEST(OllamaReply, SaysWhatWasDroppedAndGivesTheContextToGenerateOnly) {
  Finished finished = Done();
  finished.reason = FinishReason::kLength;
  finished.prompt_dropped = 7;
  finished.context = {1, 2};
  ChatEncoder generate(Endpoint::kGenerate, "M", false);
  EXPECT_EQ(Transcribe(generate, {finished}),
            "{" + kHead + R"("response":"","done":true,"done_reason":"length","context":[1,2],)" + kMetrics +
                R"(,"truncated":true,"prompt_dropped_count":7})");
  ChatEncoder chat(Endpoint::kChat, "M", false);
  EXPECT_EQ(Transcribe(chat, {finished}).find("\"context\""), std::string::npos);
}

TEST(OllamaReply, DurationsArePositiveAndNest) {
  Finished finished = Done();
  finished.usage.prompt_ns = 0;
  finished.usage.output_ns = 0;
  ChatEncoder encoder(Endpoint::kGenerate, "M", false);
  const auto zero = nlohmann::json::parse(encoder.OnEvent(finished, {.now = kNow}));
  for (const char* name : {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}) {
    EXPECT_TRUE(zero[name].is_number_integer());
    EXPECT_GT(zero[name], 0) << name;
  }
  finished.usage.output_ns = 77;
  ChatEncoder second(Endpoint::kGenerate, "M", false);
  EXPECT_GE(nlohmann::json::parse(second.OnEvent(finished, {.now = kNow, .total = 5ns}))["total_duration"],
            77);
}

TokenLogprob Logprob(const std::string& bytes, float logprob) {
  return {{bytes, 1, logprob},
          {{bytes, 1, logprob}, {"\xE2\x82", 2, -std::numeric_limits<float>::infinity()}}};
}

TEST(OllamaReply, Logprobs) {
  const std::vector<Event> events = {TextDelta{"a", {Logprob("a", -0.5F)}, 1},
                                     TextDelta{"", {Logprob("b", -0.25F)}, 1}, Done()};
  const std::string top = R"({"token":")"
                          "\xEF\xBF\xBD"
                          R"(","logprob":-9999.0,"bytes":[226,130]})";
  const std::string first = R"({"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
                            R"({"token":"a","logprob":-0.5,"bytes":[97]},)" +
                            top + "]}";
  const std::string second = R"({"token":"b","logprob":-0.25,"bytes":[98],"top_logprobs":[)"
                             R"({"token":"b","logprob":-0.25,"bytes":[98]},)" +
                             top + "]}";
  ChatEncoder stream(Endpoint::kGenerate, "M", true);
  EXPECT_EQ(Transcribe(stream, events),
            "{" + kHead + R"("response":"a","done":false,"logprobs":[)" + first + "]}\n" +  //
                "{" + kHead + R"("response":"","done":false,"logprobs":[)" + second + "]}\n" + "{" + kHead +
                R"("response":"","done":true,"done_reason":"stop",)" + kMetrics + "}\n");
  ChatEncoder whole(Endpoint::kGenerate, "M", false);
  EXPECT_EQ(Transcribe(whole, events), "{" + kHead + R"("response":"a","done":true,"done_reason":"stop",)" +
                                           kMetrics + R"(,"logprobs":[)" + first + "," + second + "]}");
}

TEST(OllamaReply, NothingThrowsOnBytesThatAreNotUtf8) {
  ChatEncoder encoder(Endpoint::kChat, "M\xFF", true);
  const std::string line = encoder.OnEvent(TextDelta{"\xC3", {}, 1}, kContext);
  EXPECT_EQ(nlohmann::json::parse(line)["message"]["content"], "\xEF\xBF\xBD");
  EXPECT_EQ(ErrorBody({ErrorCode::kInternal, "\x80", ""}), "{\"error\":\"\xEF\xBF\xBD\"}");
}

TEST(OllamaReply, LoadUnloadAndErrors) {
  EXPECT_EQ(LoadReply(Endpoint::kGenerate, "M", false, kContext),
            "{" + kHead + R"("response":"","done":true,"done_reason":"load"})");
  EXPECT_EQ(
      LoadReply(Endpoint::kChat, "M", true, kContext),
      "{" + kHead + R"("message":{"role":"assistant","content":""},"done":true,"done_reason":"unload"})");
  const Error error{ErrorCode::kRunnerDied, "the runner \"x\" ended", ""};
  EXPECT_EQ(ErrorBody(error), R"({"error":"the runner \"x\" ended"})");
  ChatEncoder encoder(Endpoint::kChat, "M", true);
  EXPECT_EQ(encoder.OnEvent(Failed{error}, kContext), R"({"error":"the runner \"x\" ended"})"
                                                      "\n");
}

TEST(OllamaLists, TagsAndVersion) {
  EXPECT_EQ(EncodeTags({}), R"({"models":[]})");
  TagEntry tag;
  tag.name = "a:latest";
  tag.modified_at = kNow;
  tag.size = 10;
  tag.digest = "d";
  tag.details = {"", "gguf", "lfm2", {"lfm2"}, "5.3M", "F16"};
  EXPECT_EQ(
      EncodeTags({tag}),
      R"({"models":[{"name":"a:latest","model":"a:latest","modified_at":"2026-08-01T12:00:00.000042Z","size":10,)"
      R"("digest":"d","details":{"parent_model":"","format":"gguf","family":"lfm2","families":["lfm2"],)"
      R"("parameter_size":"5.3M","quantization_level":"F16"},"capabilities":["completion"]}]})");
  EXPECT_EQ(EncodeVersion("0.20.0"), R"({"version":"0.20.0"})");
}

TEST(OllamaLists, PsShowsForEverAsAFarFuture) {
  EXPECT_EQ(EncodePs({}), R"({"models":[]})");
  PsEntry entry;
  entry.name = "a:latest";
  entry.size = 10;
  entry.digest = "d";
  entry.context_length = 640;
  const auto forever = nlohmann::json::parse(EncodePs({entry}))["models"][0];
  EXPECT_EQ(forever["expires_at"], "2300-01-01T00:00:00Z");
  EXPECT_EQ(forever["size_vram"], 0);
  EXPECT_EQ(forever["context_length"], 640);
  EXPECT_EQ(forever["model"], "a:latest");
  entry.expires_at = kNow;
  EXPECT_EQ(nlohmann::json::parse(EncodePs({entry}))["models"][0]["expires_at"],
            "2026-08-01T12:00:00.000042Z");
}

ShowReply Show() {
  ShowReply show;
  show.name = "a:latest";
  show.from = "/blobs/x";
  show.licenses = {"L1", "L2"};
  show.parameters_json = R"({"temperature":0.25,"stop":["AAA","B\"B"],"num_predict":7})";
  show.chat_template = "{{ x }}";
  show.system = "Be.";
  show.details.family = "lfm2";
  show.messages = {{"user", "hey"}};
  show.model_info_json = R"({"general.architecture":"lfm2","lfm2.context_length":4096,"short":[1,2],)"
                         R"("tokens":[1,2,3,4,5,6],"tokenizer.chat_template":"secret"})";
  show.tensors_json = R"([{"name":"t","type":"F16","shape":[1,2]}])";
  show.modified_at = kNow;
  return show;
}

TEST(OllamaLists, Show) {
  const auto shown = nlohmann::json::parse(EncodeShow(Show()));
  EXPECT_EQ(shown["license"], "L1\nL2");
  EXPECT_EQ(shown["parameters"],
            "temperature                    0.25\n"
            "stop                           \"AAA\"\n"
            "stop                           \"B\\\"B\"\n"
            "num_predict                    7");
  EXPECT_EQ(shown["modelfile"],
            "# Modelfile generated by \"quire show\"\n"
            "# To build a new Modelfile based on this, replace FROM with:\n# FROM a:latest\n\n"
            "FROM /blobs/x\nTEMPLATE {{ x }}\nSYSTEM Be.\nPARAMETER temperature 0.25\n"
            "PARAMETER stop AAA\nPARAMETER stop B\"B\nPARAMETER num_predict 7\n"
            "MESSAGE user hey\nLICENSE L1\nLICENSE L2\n");
  EXPECT_EQ(shown["model_info"].dump(),
            R"({"general.architecture":"lfm2","lfm2.context_length":4096,"short":[1,2],"tokens":[]})");
  EXPECT_EQ(shown["tensors"][0]["name"], "t");
  EXPECT_EQ(shown["capabilities"].dump(), R"(["completion"])");
  EXPECT_EQ(shown["details"]["format"], "gguf");
  EXPECT_EQ(shown["messages"].dump(), R"([{"content":"hey","role":"user"}])");
  EXPECT_EQ(shown["template"], "{{ x }}");
}

TEST(OllamaLists, ShowVerboseOverridesAndBrokenInput) {
  ShowReply show = Show();
  show.verbose = true;
  show.basename = "mine";
  show.overrides_json = R"({"temperature":1,"top_k":2})";
  auto shown = nlohmann::json::parse(EncodeShow(show));
  EXPECT_EQ(shown["model_info"]["tokens"].size(), 6U);
  EXPECT_EQ(shown["model_info"]["general.basename"], "mine");
  EXPECT_THAT(std::string(shown["parameters"]), testing::StartsWith("temperature                    1\n"));
  EXPECT_THAT(std::string(shown["parameters"]), testing::EndsWith("\ntop_k                          2"));

  show = {};
  show.model_info_json = "[";
  show.tensors_json = "{}";
  show.parameters_json = "5";
  shown = nlohmann::json::parse(EncodeShow(show));
  EXPECT_EQ(shown["model_info"].dump(), "{}");
  EXPECT_EQ(shown["tensors"].dump(), "[]");
  EXPECT_EQ(shown["parameters"], "");
}

TEST(Timestamp, HoldsBefore1970AndLeapYears) {
  EXPECT_EQ(FormatTimestamp({}), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(FormatTimestamp(std::chrono::system_clock::time_point(-1us)), "1969-12-31T23:59:59.999999Z");
  EXPECT_EQ(FormatTimestamp(std::chrono::system_clock::time_point(std::chrono::seconds(951825600))),
            "2000-02-29T12:00:00.000000Z");
}

}  // namespace
}  // namespace quire::api::ollama
