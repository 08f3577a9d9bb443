#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "api/base/image_use.h"
#include "api/base/testing/shown_images.h"
#include "api/openai/chat.h"

namespace quire::api::openai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;

std::string ChatWith(const std::string& fields) {
  return R"({"model":"m","messages":[{"role":"user","content":"x"}],)" + fields + "}";
}

Error ErrorOf(const std::string& body) {
  const auto parsed = ParseChat(body);
  EXPECT_FALSE(parsed) << body;
  return parsed ? Error{} : parsed.error();
}

TEST(OpenAiParse, ReadsEveryField) {
  const auto r = ParseChat(R"({"model":"M","messages":[{"role":"developer","content":"d"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"n"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",
      "function":{"name":"f","arguments":"{\"z\": 1, \"a\": 2}"}}]},
    {"role":"tool","tool_call_id":"c","content":"11"}],
    "max_tokens":5,"max_completion_tokens":7,"temperature":0.5,"top_p":0.25,"seed":-3,"stop":"END",
    "presence_penalty":1,"frequency_penalty":-1,"stream":true,"stream_options":{"include_usage":true},
    "logprobs":true,"top_logprobs":2,"n":1,"tools":[],"tool_choice":"none","response_format":{"type":"text"},
    "logit_bias":{},"reasoning_effort":"none","top_k":3,"min_p":0.5,"repeat_penalty":1.25,"keep_alive":"5m",
    "options":{"num_ctx":640,"temperature":0.9,"frob":1},"user":"u","metadata":{"a":"b"},"store":true,
    "service_tier":"auto","parallel_tool_calls":false,"modalities":["text"]})");
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->model, "M");
  ASSERT_EQ(r->messages.size(), 4U);
  EXPECT_EQ(r->messages[0].role, "system");
  EXPECT_EQ(r->messages[1].content, "ab");
  EXPECT_EQ(r->messages[2].tool_calls.at(0).arguments_json, R"({"z":1,"a":2})");
  EXPECT_EQ(r->messages[3].tool_call_id, "c");
  EXPECT_EQ(r->options.num_predict, 7);
  EXPECT_EQ(r->options.temperature, 0.5F);
  EXPECT_EQ(r->options.top_p, 0.25F);
  EXPECT_EQ(r->options.seed, -3);
  EXPECT_THAT(*r->options.stop, ElementsAre("END"));
  EXPECT_EQ(r->options.presence_penalty, 1.0F);
  EXPECT_EQ(r->options.frequency_penalty, -1.0F);
  EXPECT_EQ(r->options.top_k, 3);
  EXPECT_EQ(r->options.min_p, 0.5F);
  EXPECT_EQ(r->options.repeat_penalty, 1.25F);
  EXPECT_EQ(r->options.num_ctx, 640);
  EXPECT_EQ(r->keep_alive, 5min);
  EXPECT_THAT(r->unknown_options, ElementsAre("frob"));
  EXPECT_TRUE(r->stream && r->include_usage && r->logprobs);
  EXPECT_EQ(r->top_logprobs, 2);
}

TEST(OpenAiParse, DefaultsAreOpenAis) {
  const auto r = ParseChat(ChatWith("\"stream\":null"));
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_FALSE(r->stream);
  Request request = ToRequest(*r, {});
  EXPECT_EQ(request.params.temperature, 1.0F);
  EXPECT_EQ(request.params.top_p, 1.0F);
  EXPECT_EQ(request.params.num_predict, -1);
  EXPECT_EQ(request.overflow, Overflow::kRefuse);
  EXPECT_FALSE(request.shift);
  EXPECT_FALSE(request.return_context);

  ModelDefaults defaults;
  defaults.options.temperature = 0.3F;
  defaults.system = "sys";
  request = ToRequest(*r, defaults);
  EXPECT_EQ(request.params.temperature, 0.3F);
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).messages.at(0).content, "sys");
}

TEST(OpenAiParse, MessagesMustSaySomething) {
  EXPECT_EQ(ErrorOf(R"({"model":"m","messages":[]})").field, "messages");
  EXPECT_EQ(ErrorOf(R"({"model":"m"})").field, "messages");
  EXPECT_EQ(ErrorOf(R"({"messages":[]})").message, "model is required");
  EXPECT_EQ(ErrorOf("").message, "missing request body");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"role":"user","content":5})", "messages[0].content"},
      {R"({"role":"user","content":null})", "messages[0].content"},
      {R"({"role":"user"})", "messages[0].content"},
      {R"({"role":"robot","content":"x"})", "messages[0].role"},
      {R"({"content":"x"})", "messages[0].role"},
      {R"({"role":"user","content":["x"]})", "messages[0].content[0]"},
      {R"({"role":"user","content":[{"text":"x"}]})", "messages[0].content[0].type"},
      {R"({"role":"user","content":[{"type":"text"}]})", "messages[0].content[0].text"}};
  for (const auto& [message, path] : cases) {
    const Error error = ErrorOf(R"({"model":"m","messages":[)" + message + "]}");
    EXPECT_EQ(error.field, path) << message;
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << message;
  }
}

TEST(OpenAiParse, ImagesKeepTheirPlaces) {
  const auto request = ParseChat(R"({"model":"m","messages":[
      {"role":"user","content":[{"type":"text","text":"a"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"low"}},
        {"type":"text","text":"b"},{"type":"image_url","image_url":"data:image/png;base64,MQ=="}]},
      {"role":"assistant","tool_plan":"plan","content":[{"type":"input_image","image_url":"data:;base64,Mg"},
        {"type":"text","text":"c"}],
        "tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"shot:"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,Mw=="}}]}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(WithImages(request->messages[0]), "a{hi}b{1}");
  EXPECT_EQ(WithImages(request->messages[1]), "plan\n{2}c");
  EXPECT_EQ(WithImages(request->messages[2]), "shot:{3}");
}

TEST(OpenAiParse, ImagesOfTheHistoryAreALineToAModelOfText) {
  const std::string image = R"({"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}})";
  auto request = ParseChat(R"({"model":"m","messages":[{"role":"user","content":[)" + image +
                           R"(,{"type":"text","text":"see"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"shot:"},)" +
                           image + "]}]}");
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_TRUE(SettleImages(request->image_use, false, request->messages));
  EXPECT_EQ(request->messages[0].content, "[image omitted: this model takes text only]\nsee");
  EXPECT_EQ(request->messages[2].content, "shot:\n[image omitted: this model takes text only]\n");
}

TEST(OpenAiParse, ImagesThatAreNotSentAreRefusedByName) {
  struct Case {
    std::string part, field, text;
    ErrorCode code = ErrorCode::kInvalidArgument;
  };
  const std::string part = "messages[0].content[0].";
  const std::vector<Case> cases = {
      {R"({"type":"image_url","image_url":{"url":"https://a/b.png"}})", part + "image_url.url", "https URLs",
       ErrorCode::kUnsupported},
      {R"({"type":"image_url","image_url":"file:///a.png"})", part + "image_url", "file URLs",
       ErrorCode::kUnsupported},
      {R"({"type":"input_image","file_id":"file-1"})", part + "file_id", "no files", ErrorCode::kUnsupported},
      {R"({"type":"image_url","image_url":{"url":"data:image/png;base64,a*"}})", part + "image_url.url",
       "byte 1 is '*'"},
      {R"({"type":"image_url","image_url":{}})", part + "image_url.url", "required"},
      {R"({"type":"image_url"})", part + "image_url", "required"}};
  for (const Case& one : cases) {
    auto request = ParseChat(R"({"model":"m","messages":[{"role":"user","content":[)" + one.part + "]}]}");
    ASSERT_TRUE(request) << request.error().message;
    const Error seen = SettleImages(request->image_use, true, request->messages).error();
    EXPECT_EQ(seen.field, one.field);
    EXPECT_EQ(seen.code, one.code) << one.part;
    EXPECT_THAT(seen.message, ::testing::HasSubstr(one.text));
    const Error text_only = SettleImages(request->image_use, false, request->messages).error();
    EXPECT_EQ(text_only.field, part + "type");
    EXPECT_EQ(text_only.code, ErrorCode::kUnsupported);
  }
}

TEST(OpenAiParse, WhatIsNotDoneIsRefusedByName) {
  for (const std::string part : {R"({"type":"input_audio","input_audio":{}})", R"({"type":"hologram"})"}) {
    const Error error = ErrorOf(R"({"model":"m","messages":[{"role":"user","content":[)" + part + "]}]}");
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << part;
  }
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("function_call":{"name":"f"})", "function_call"},
      {R"("modalities":["text","audio"])", "modalities"}};
  for (const auto& [fields, path] : cases) {
    const Error error = ErrorOf(ChatWith(fields));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << fields;
    EXPECT_EQ(error.field, path) << fields;
    EXPECT_EQ(HttpStatus(error.code), 400);
  }
}

TEST(OpenAiParse, AnswersAndResultsMayLackContent) {
  const auto chat = ParseChat(R"({"model":"M","messages":[{"role":"user","content":"x"},
    {"role":"assistant","content":null,"tool_calls":[]},{"role":"assistant","content":null,"refusal":"no"},
    {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\":"}},
    {"role":"function","name":"f","content":"r"},{"role":"tool","tool_call_id":"c"}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  const Request request = ToRequest(*chat, {});
  const auto& messages = std::get<ChatPrompt>(request.prompt).messages;
  ASSERT_EQ(messages.size(), 6U);
  EXPECT_EQ(messages[1].content, "");
  EXPECT_EQ(messages[2].content, "no");
  EXPECT_EQ(messages[3].tool_calls.at(0).name, "f");
  EXPECT_EQ(messages[3].tool_calls.at(0).arguments_json, R"({"a":)");
  EXPECT_EQ(messages[4].role, "tool");
  EXPECT_EQ(messages[4].tool_name, "f");
}

TEST(OpenAiParse, ToolsAndThinkingReachTheRequest) {
  auto chat = ParseChat(R"({"model":"M","reasoning":{"effort":"high"},"parallel_tool_calls":false,
    "tools":[{"type":"function","function":{"name":"f"}}],"messages":[{"role":"user","content":"x"},
    {"role":"assistant","content":null,"reasoning_content":"hm",
     "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"c","content":"1"}]})");
  ASSERT_TRUE(chat) << chat.error().message;
  const Request request = ToRequest(*std::move(chat), {});
  const auto& prompt = std::get<ChatPrompt>(request.prompt);
  EXPECT_EQ(prompt.tools.at(0).definition_json, R"({"type":"function","function":{"name":"f"}})");
  EXPECT_EQ(prompt.messages[1].thinking, "hm");
  EXPECT_EQ(prompt.messages[2].tool_name, "f");
  EXPECT_EQ(request.think, Think::kHigh);
  EXPECT_TRUE(request.single_tool_call);
  EXPECT_EQ(request.model_name, "M");
}

TEST(OpenAiParse, IllFormedValuesAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("tool_choice":"maybe")", "tool_choice"},
      {R"("tool_choice":5)", "tool_choice"},
      {R"("response_format":{"type":"xml"})", "response_format.type"},
      {R"("response_format":{})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})",
       "response_format.json_schema.schema"},
      {R"("guided_choice":[])", "guided_choice"},
      {R"("guided_choice":["a",1])", "guided_choice"},
      {R"("guided_regex":5)", "guided_regex"},
      {R"("structured_outputs":{"regex":"a","choice":["b"]})", "choice"},
      {R"("response_format":"xml")", "response_format"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("logit_bias":{"x":1})", "logit_bias.x"},
      {R"("logit_bias":{"5":101})", "logit_bias.5"},
      {R"("logit_bias":{"5":"1"})", "logit_bias.5"},
      {R"("logit_bias":{"-5":1})", "logit_bias.-5"},
      {R"("n":129)", "n"},
      {R"("n":0)", "n"},
      {R"("reasoning_effort":"much")", "reasoning_effort"},
      {R"("stream_options":5)", "stream_options"},
      {R"("stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("stream":"yes")", "stream"},
      {R"("stop":[5])", "stop"},
      {R"("logprobs":5)", "logprobs"},
      {R"("top_logprobs":2)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("temperature":"hot")", "temperature"},
      {R"("tools":{})", "tools"}};
  for (const auto& [fields, path] : cases) {
    const Error error = ErrorOf(ChatWith(fields));
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << fields;
    EXPECT_EQ(error.field, path) << fields;
    EXPECT_THAT(error.message, HasSubstr(path)) << fields;
  }
}

}  // namespace
}  // namespace quire::api::openai
