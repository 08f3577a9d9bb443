#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "api/base/image_use.h"
#include "api/base/limits.h"
#include "api/base/testing/shown_images.h"
#include "api/ollama/chat.h"

namespace quire::api::ollama {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

Error ChatError(std::string_view body) {
  const auto parsed = ParseChat(body);
  EXPECT_FALSE(parsed) << body;
  return parsed ? Error{} : parsed.error();
}

Error GenerateError(std::string_view body) {
  const auto parsed = ParseGenerate(body);
  EXPECT_FALSE(parsed) << body;
  return parsed ? Error{} : parsed.error();
}

TEST(OllamaRequest, WhatIsNotReadIsLogged) {
  const auto chat = ParseChat(
      R"({"model":"m","messages":[],"grammar":"root ::= [a]","tool_choice":"none","format":"json"})");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_THAT(chat->unknown_options, testing::UnorderedElementsAre("grammar", "tool_choice"));
  const auto generate = ParseGenerate(R"({"model":"m","prompt":"x","messages":[],"raw":true})");
  ASSERT_TRUE(generate) << generate.error().message;
  EXPECT_THAT(generate->unknown_options, testing::ElementsAre("messages"));
}

TEST(ParseGenerate, ReadsEveryField) {
  const auto r =
      ParseGenerate(R"({"model":"Quire-Demo:Latest","prompt":"hi","system":"be brief","stream":false,
    "keep_alive":"1h30m","options":{"seed":7,"frob":1},"truncate":false,"shift":false,"logprobs":true,
    "top_logprobs":3,"context":[1,2,3.0],"think":false,"format":"","images":[],"suffix":"","template":""})");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->model, "Quire-Demo:Latest");
  EXPECT_EQ(r->prompt, "hi");
  EXPECT_EQ(r->system, "be brief");
  EXPECT_FALSE(r->stream);
  EXPECT_EQ(r->keep_alive, 90min);
  EXPECT_EQ(r->options.seed, 7);
  EXPECT_THAT(r->unknown_options, ElementsAre("frob"));
  EXPECT_FALSE(r->truncate);
  EXPECT_FALSE(r->shift);
  EXPECT_TRUE(r->logprobs);
  EXPECT_EQ(r->top_logprobs, 3);
  EXPECT_THAT(r->context, ElementsAre(1, 2, 3));
}

TEST(ParseGenerate, DefaultsAreOllamas) {
  const auto r =
      ParseGenerate(R"(  {"model":"m","prompt":null,"stream":null,"think":null,"options":null}  )");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->stream);
  EXPECT_TRUE(r->truncate);
  EXPECT_TRUE(r->shift);
  EXPECT_FALSE(r->keep_alive);
  EXPECT_TRUE(r->prompt.empty());
}

TEST(ParseGenerate, KeepAliveForms) {
  const std::vector<std::pair<std::string, std::chrono::nanoseconds>> cases = {
      {"90", 90s},   {"0.5", 500ms},         {"0", 0s},         {"\"5m\"", 5min},
      {"\"0\"", 0s}, {"\"1500ms\"", 1500ms}, {"\"300\"", 300s}, {"\"0.5\"", 500ms}};
  for (const auto& [json, expected] : cases) {
    const auto r = ParseGenerate(R"({"model":"m","keep_alive":)" + json + "}");
    ASSERT_TRUE(r) << json;
    EXPECT_EQ(r->keep_alive, expected) << json;
  }
  for (const std::string json : {"-1", "-0.5", "\"-1s\"", "\"-1\"", "-1e300"}) {
    const auto r = ParseGenerate(R"({"model":"m","keep_alive":)" + json + "}");
    ASSERT_TRUE(r) << json;
    EXPECT_LT(*r->keep_alive, 0s) << json;
  }
  for (const std::string json :
       {"\"soon\"", "true", "{}", "[]", "\"\"", "\"5x\"", "\"nan\"", "\"1e12\"", "1e12"}) {
    const Error error = GenerateError(R"({"model":"m","keep_alive":)" + json + "}");
    EXPECT_EQ(error.field, "keep_alive") << json;
  }
}

TEST(ParseGenerate, RawGoesWithNothingThatNeedsATemplate) {
  EXPECT_TRUE(ParseGenerate(R"({"model":"m","prompt":"x","raw":true,"context":[],"system":""})"));
  for (const std::string other : {R"("system":"x")", R"("template":"x")", R"("context":[1])"}) {
    const Error error = GenerateError(R"({"model":"m","prompt":"x","raw":true,)" + other + "}");
    EXPECT_EQ(error.field, "raw");
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("raw"));
  }
}

TEST(ParseGenerate, ASuffixAsksForWhatGoesBetween) {
  const auto r = ParseGenerate(R"({"model":"m","prompt":"a","suffix":"z"})");
  ASSERT_TRUE(r) << r.error().message;
  ModelDefaults defaults;
  defaults.system = "Be kind.";
  const Request request = ToRequest(*r, defaults);
  EXPECT_EQ(std::get<FimPrompt>(request.prompt).prefix, "a");
  EXPECT_EQ(std::get<FimPrompt>(request.prompt).suffix, "z");
  EXPECT_TRUE(request.return_context);
  for (const std::string other : {R"("system":"x")", R"("context":[1])"}) {
    EXPECT_EQ(GenerateError(R"({"model":"m","prompt":"x","suffix":"z",)" + other + "}").field, "suffix");
  }
}

TEST(ParseGenerate, ATemplateTakesThePlaceOfTheModels) {
  const auto r = ParseGenerate(R"({"model":"m","prompt":"a","template":"U {{ .Prompt }}"})");
  ASSERT_TRUE(r);
  EXPECT_EQ(ToRequest(*r, {}).go_template, "U {{ .Prompt }}");
}

TEST(ParseGenerate, WhatIsNotDoneIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("_debug_render_only":true)", "_debug_render_only is not supported in this version"}};
  for (const auto& [field, message] : cases) {
    const Error error = GenerateError(R"({"model":"m","prompt":"x",)" + field + "}");
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << field;
    EXPECT_EQ(error.message, message) << field;
    EXPECT_EQ(HttpStatus(error.code), 400);
  }
}

TEST(ParseGenerate, IllFormedValuesAreRefusedByName) {
  for (const std::string field :
       {"prompt", "system", "suffix", "template", "model", "stream", "raw", "truncate", "shift", "logprobs",
        "options", "images", "think", "format", "context"}) {
    const Error error = GenerateError(R"({"model":"m",")" + field + R"(":5})");
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << field;
    EXPECT_THAT(error.message, HasSubstr(field)) << field;
  }
  for (const std::string context : {R"(["1"])", "[-1]", "[2147483648]", "[1.5]", "[null]", R"("1")"}) {
    EXPECT_EQ(GenerateError(R"({"model":"m","context":)" + context + "}").field, "context") << context;
  }
  for (const std::string think : {R"("huge")", "3", R"("")", "[]"}) {
    EXPECT_THAT(GenerateError(R"({"model":"m","think":)" + think + "}").message, HasSubstr("think"));
  }
  for (const std::string format : {R"("yaml")", "5", "true", "[]"}) {
    EXPECT_THAT(GenerateError(R"({"model":"m","format":)" + format + "}").message, HasSubstr("format"));
  }
  EXPECT_THAT(GenerateError(R"({"model":"m","top_logprobs":21})").message, HasSubstr("top_logprobs"));
}

TEST(ParseChat, ReadsMessages) {
  const auto r = ParseChat(R"({"model":"m","tools":[],"messages":[
    {"role":"System","content":"s"},
    {"role":"USER","content":"u","images":null,"extra":[1]},
    {"role":"assistant","thinking":"t","tool_calls":[{"id":"c","function":{"name":"f","arguments":{"b":1,"a":[2]}}}]},
    {"role":"tool","content":"r","tool_name":"f","tool_call_id":"c"},
    {"role":"ipython","content":null}]})");
  ASSERT_TRUE(r) << r.error().message;
  ASSERT_EQ(r->messages.size(), 5U);
  EXPECT_EQ(r->messages[0].role, "system");
  EXPECT_EQ(r->messages[1].role, "user");
  EXPECT_EQ(r->messages[1].content, "u");
  EXPECT_EQ(r->messages[2].content, "");
  EXPECT_EQ(r->messages[2].thinking, "t");
  ASSERT_EQ(r->messages[2].tool_calls.size(), 1U);
  EXPECT_EQ(r->messages[2].tool_calls[0].name, "f");
  EXPECT_EQ(r->messages[2].tool_calls[0].arguments_json, R"({"b":1,"a":[2]})");
  EXPECT_EQ(r->messages[3].tool_name, "f");
  EXPECT_EQ(r->messages[3].tool_call_id, "c");
  EXPECT_EQ(r->messages[4].role, "ipython");
}

TEST(ParseChat, FieldNamesMatchWithoutRegardToCaseAndExactlyFirst) {
  const auto r =
      ParseChat(R"({"Model":"wrong","model":"m","MESSAGES":[{"Role":"user","Content":"x"}],"STREAM":false})");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->model, "m");
  EXPECT_EQ(r->messages.at(0).content, "x");
  EXPECT_FALSE(r->stream);
}

TEST(ParseChat, BodiesThatAreNoRequest) {
  for (const std::string_view body : {"", "  \n"}) EXPECT_EQ(ChatError(body).message, "missing request body");
  for (const std::string_view body : {"[]", "5", "\"x\"", "null"}) {
    EXPECT_EQ(ChatError(body).message, "request body must be a JSON object");
  }
  for (const std::string_view body : {"{\"model\":", "{}{}", "{'a':1}", "{\"model\":\"m\",}"}) {
    EXPECT_THAT(ChatError(body).message, HasSubstr("invalid JSON")) << body;
  }
  EXPECT_EQ(ChatError(R"({"messages":[]})").message, "model is required");
  EXPECT_EQ(ChatError(R"({"model":"","messages":[]})").message, "model is required");
  EXPECT_EQ(ChatError(R"({"model":1})").message, "field \"model\" must be of type string");
  EXPECT_EQ(ChatError(R"({"model":"m","messages":"hi"})").message,
            "field \"messages\" must be of type array");
  EXPECT_EQ(HttpStatus(ChatError(std::string(kBodyBytesMax + 1, 'x')).code), 413);
}

TEST(ParseChat, MessageErrorsNameThePath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"role":"user","content":5})", "messages[1].content"},
      {R"({"role":"user","content":[{"type":"text"}]})", "messages[1].content[0].text"},
      {R"({"role":"user","content":[{"type":"image_url","text":"x"}]})", "messages[1].content[0].type"},
      {R"({"role":5})", "messages[1].role"},
      {R"({"content":"x"})", "messages[1].role"},
      {R"("x")", "messages[1]"},
      {R"(null)", "messages[1]"},
      {R"({"role":"user","images":"x"})", "messages[1].images"},
      {R"({"role":"user","images":[5]})", "messages[1].images"},
      {R"({"role":"a","tool_calls":5})", "messages[1].tool_calls"},
      {R"({"role":"a","tool_calls":[5]})", "messages[1].tool_calls[0]"},
      {R"({"role":"a","tool_calls":[{}]})", "messages[1].tool_calls[0].function"},
      {R"({"role":"a","tool_calls":[{"function":{}}]})", "messages[1].tool_calls[0].function.name"}};
  for (const auto& [message, path] : cases) {
    const Error error =
        ChatError(R"({"model":"m","messages":[{"role":"user","content":""},)" + message + "]}");
    EXPECT_EQ(error.field, path);
    EXPECT_EQ(HttpStatus(error.code), 400);
  }
}

// A model's malformed call must not fail every later request.
TEST(ParseChat, ArgumentsOfTheHistoryAreTakenAsTheyAre) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("{\"a\": 1, \"b\":2}")", R"({"a":1,"b":2})"},
      {R"("{\"a\":")", R"({"a":)"},
      {R"("[]")", "[]"},
      {"[]", "[]"},
      {"null", "{}"},
      {R"("")", "{}"},
      {R"(" ")", "{}"}};
  for (const auto& [arguments, expected] : cases) {
    const auto chat = ParseChat(
        R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" +
        arguments + "}}]}]}");
    ASSERT_TRUE(chat) << arguments;
    EXPECT_EQ(chat->messages[0].tool_calls.at(0).arguments_json, expected);
  }
}

TEST(ParseChat, ContentMayBeTextParts) {
  const auto chat = ParseChat(
      R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":[]}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_EQ(chat->messages[0].content, "ab");
  EXPECT_EQ(chat->messages[1].content, "");
}

TEST(ParseChat, ToolsAndThinkingReachTheRequest) {
  auto chat = ParseChat(R"({"model":"M","messages":[{"role":"user","content":"x"}],"think":"low",
    "tools":[{"type":"function","function":{"name":"f","parameters":{}}}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  const Request request = ToRequest(*std::move(chat), {});
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).tools.at(0).definition_json,
            R"({"type":"function","function":{"name":"f","parameters":{}}})");
  EXPECT_EQ(request.think, Think::kLow);
  EXPECT_EQ(request.model_name, "M");
  EXPECT_EQ(ChatError(R"({"model":"m","tools":{}})").field, "tools");
  EXPECT_EQ(ChatError(R"({"model":"m","tools":[{"type":"function"}]})").field, "tools[0].function");
}

TEST(ParseChat, BoundsTheNumberOfMessages) {
  std::string body = R"({"model":"m","messages":[{"role":""})";
  for (size_t i = 0; i < kMessagesMax; ++i) body += R"(,{"role":""})";
  EXPECT_EQ(ChatError(body + "]}").code, ErrorCode::kTooLarge);
}

TEST(ParseChat, ALongChatFits) {
  std::string body = R"({"model":"m","messages":[{"role":"user","content":"hello there"})";
  for (int i = 0; i < 100'000; ++i) body += R"(,{"role":"user","content":"hello there"})";
  const auto r = ParseChat(body + "]}");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->messages.size(), 100'001U);
}

TEST(ParseChat, DepthIsBoundedFromOneThousandOn) {
  const auto nested = [](size_t depth) {
    return R"({"model":"m","x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(ParseChat(nested(1000)));
  EXPECT_FALSE(ParseChat(nested(10'000)));
  EXPECT_FALSE(ParseChat(nested(1'000'000)));
}

TEST(ParseShow, TakesTheOldNameFieldToo) {
  const auto a = ParseShow(R"({"name":"m","verbose":true,"system":"s","options":{"b":1,"a":"x"}})");
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ(a->model, "m");
  EXPECT_TRUE(a->verbose);
  EXPECT_EQ(a->system, "s");
  EXPECT_EQ(a->options_json, R"({"b":1,"a":"x"})");
  EXPECT_EQ(ParseShow(R"({"model":"x","name":"y"})")->model, "x");
  EXPECT_EQ(ParseShow("{}").error().message, "model is required");
}

ModelDefaults Defaults() {
  ModelDefaults defaults;
  defaults.system = "model system";
  defaults.messages = {{"user", "hey"}, {"assistant", "ahoy"}};
  defaults.options.temperature = 0.1F;
  defaults.options.seed = 5;
  return defaults;
}

std::vector<std::string> Turns(const std::vector<Message>& messages) {
  std::vector<std::string> turns;
  for (const Message& message : messages) turns.push_back(message.role + ":" + message.content);
  return turns;
}

TEST(ToRequest, ChatAddsWhatTheModelBrings) {
  auto chat = ParseChat(R"({"model":"m","messages":[{"role":"user","content":"q"}],"options":{"seed":9}})");
  const Request request = ToRequest(*chat, Defaults());
  EXPECT_THAT(Turns(std::get<ChatPrompt>(request.prompt).messages),
              ElementsAre("system:model system", "user:hey", "assistant:ahoy", "user:q"));
  EXPECT_EQ(request.params.temperature, 0.1F);
  EXPECT_EQ(request.params.seed, 9);
  EXPECT_EQ(request.overflow, Overflow::kTruncate);
  EXPECT_FALSE(request.return_context);

  chat = ParseChat(R"({"model":"m","truncate":false,"shift":false,"top_logprobs":4,
                       "messages":[{"role":"system","content":"own"},{"role":"user","content":"q"}]})");
  const Request own = ToRequest(*chat, Defaults());
  EXPECT_THAT(Turns(std::get<ChatPrompt>(own.prompt).messages),
              ElementsAre("user:hey", "assistant:ahoy", "system:own", "user:q"));
  EXPECT_EQ(own.overflow, Overflow::kRefuse);
  EXPECT_FALSE(own.shift);
  EXPECT_EQ(own.top_logprobs, 0);
}

TEST(ToRequest, ASingleTurnIsTheSameForGenerateAndChat) {
  const Request generate = ToRequest(*ParseGenerate(R"({"model":"m","prompt":"q"})"), Defaults());
  const Request chat =
      ToRequest(*ParseChat(R"({"model":"m","messages":[{"role":"user","content":"q"}]})"), Defaults());
  EXPECT_EQ(Turns(std::get<ContinuedPrompt>(generate.prompt).messages),
            Turns(std::get<ChatPrompt>(chat.prompt).messages));
  EXPECT_TRUE(generate.return_context);
}

TEST(ToRequest, GenerateForms) {
  const Request system =
      ToRequest(*ParseGenerate(R"({"model":"m","prompt":"q","system":"own"})"), Defaults());
  EXPECT_THAT(Turns(std::get<ContinuedPrompt>(system.prompt).messages),
              ElementsAre("system:own", "user:hey", "assistant:ahoy", "user:q"));

  const Request raw = ToRequest(*ParseGenerate(R"({"model":"m","prompt":"q","raw":true})"), Defaults());
  EXPECT_EQ(std::get<RawPrompt>(raw.prompt).text, "q");
  EXPECT_FALSE(raw.return_context);

  const Request on = ToRequest(*ParseGenerate(R"({"model":"m","prompt":"q","context":[4,5]})"), Defaults());
  EXPECT_THAT(std::get<ContinuedPrompt>(on.prompt).context, ElementsAre(4, 5));
  EXPECT_THAT(Turns(std::get<ContinuedPrompt>(on.prompt).messages), ElementsAre("user:q"));
  EXPECT_TRUE(on.return_context);
}

TEST(ParseChat, ImagesStandBeforeTheTextOrInTheirPlaces) {
  const auto request = ParseChat(R"({"model":"m","messages":[{"role":"user","content":"a","images":["aGk="]},
      {"role":"assistant","content":"b"},
      {"role":"user","content":"see [img] and [img].","images":["MQ","data:image/png;base64,Mg","Mw"]},
      {"role":"tool","content":"","images":["aGk=","MQ=="]}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->image_use.any);
  EXPECT_THAT(Turns(request->messages), ElementsAre("user:a", "assistant:b", "user:see  and .", "tool:"));
  EXPECT_EQ(WithImages(request->messages[0]), "{hi}a");
  EXPECT_EQ(WithImages(request->messages[2]), "{3}see {1} and {2}.");
  EXPECT_EQ(WithImages(request->messages[3]), "{hi}{1}");
}

TEST(ParseChat, ImagesAreRefusedInTheUsersTurnAndALineBefore) {
  auto request = ParseChat(R"({"model":"m","messages":[{"role":"user","content":"a","images":["!"]},
      {"role":"assistant","content":"b"},{"role":"tool","content":"c","images":["aGk=","aGk="]}]})");
  ASSERT_TRUE(request) << request.error().message;
  auto messages = request->messages;
  ASSERT_TRUE(SettleImages(request->image_use, false, messages));
  const std::string line = "[image omitted: this model takes text only]\n";
  EXPECT_THAT(Turns(messages), ElementsAre("user:" + line + "a", "assistant:b", "tool:" + line + line + "c"));
  ASSERT_TRUE(SettleImages(request->image_use, true, request->messages));
  EXPECT_EQ(request->messages[0].content, "[image omitted: it was not sent as base64]\na");
  EXPECT_EQ(WithImages(request->messages[2]), "{hi}{hi}c");

  request = ParseChat(
      R"({"model":"m","messages":[{"role":"user","content":"a","images":["aGk=","http://x/a.png"]}]})");
  ASSERT_TRUE(request) << request.error().message;
  const auto text_only = SettleImages(request->image_use, false, request->messages);
  EXPECT_EQ(text_only.error().message, "m does not support images");
  EXPECT_EQ(text_only.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(text_only.error().field, "messages[0].images");
  const auto seen = SettleImages(request->image_use, true, request->messages);
  EXPECT_EQ(seen.error().message,
            "messages[0].images[1]: http URLs are not fetched; send the image as a data URL");
}

TEST(ParseGenerate, ImagesBelongToThePrompt) {
  const auto request = ParseGenerate(R"({"model":"m","prompt":"in [img]","images":["aGk="],"system":"s"})");
  ASSERT_TRUE(request) << request.error().message;
  const Request made = ToRequest(*request, Defaults());
  EXPECT_EQ(WithImages(std::get<ContinuedPrompt>(made.prompt).messages.back()), "in {hi}");
  EXPECT_FALSE(made.return_context) << "rows of images are no tokens";
  std::vector<Message> none;
  EXPECT_EQ(SettleImages(request->image_use, false, none).error().message, "m does not support images");
  EXPECT_TRUE(SettleImages(request->image_use, true, none));
  EXPECT_EQ(GenerateError(R"({"model":"m","prompt":"x","raw":true,"images":["aGk="]})").field, "images");
  EXPECT_EQ(GenerateError(R"({"model":"m","prompt":"x","suffix":"y","images":["aGk="]})").field, "images");
}

}  // namespace
}  // namespace quire::api::ollama
