// Fields of chats that other servers have: the template's variables, how the prompt ends, allowed tools,
// sampling, and what is refused by name.
#include "api/openai/template_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/openai/chat.h"
#include "api/openai/completions.h"

namespace quire::api::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string With(const std::string& fields, const std::string& role = "user") {
  return R"({"model":"M","messages":[{"role":")" + role + R"(","content":"x"}],)" + fields + "}";
}

Request Parsed(const std::string& fields, const std::string& role = "user") {
  auto chat = ParseChat(With(fields, role));
  EXPECT_TRUE(chat) << fields << " " << chat.error().message;
  return chat ? ToRequest(*std::move(chat), {}) : Request();
}

TEST(TemplateFields, Thinking) {
  EXPECT_EQ(Parsed(R"("enable_thinking":false)").think, Think::kOff);
  EXPECT_EQ(Parsed(R"("chat_template_kwargs":{"enable_thinking":false})").think, Think::kOff);
  EXPECT_EQ(Parsed(R"("chat_template_kwargs":{"thinking":false},"reasoning_effort":"high")").think,
            Think::kOff);
  EXPECT_EQ(Parsed(R"("chat_template_kwargs":{"reasoning_effort":"high"},"enable_thinking":true)").think,
            Think::kHigh);
  const Request on = Parsed(R"("enable_thinking":true,"max_thinking_tokens":7)");
  EXPECT_EQ(on.think, Think::kOn);
  EXPECT_TRUE(on.think_optional);
  EXPECT_EQ(on.thinking_tokens_max, 7);
  EXPECT_EQ(Parsed(R"("reasoning":{"max_tokens":9})").thinking_tokens_max, 9);
  EXPECT_EQ(Parsed(R"("n":1)").thinking_tokens_max, -1);
}

TEST(TemplateFields, OtherArgumentsAreVariables) {
  const Request request =
      Parsed(R"("chat_template_kwargs":{"thinking":true,"date":"today","tools_in_user":false,"l":[1]})");
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).template_arguments_json,
            R"({"date":"today","tools_in_user":false,"l":[1]})");
}

TEST(TemplateFields, HowThePromptEnds) {
  const auto end = [](const std::string& fields) {
    return std::get<ChatPrompt>(Parsed(fields, "assistant").prompt).end;
  };
  EXPECT_EQ(end(R"("n":1)"), PromptEnd::kAuto);
  EXPECT_EQ(end(R"("continue_final_message":true,"add_generation_prompt":false)"), PromptEnd::kLastMessage);
  EXPECT_EQ(end(R"("continue_final_message":false)"), PromptEnd::kAnswer);
  EXPECT_EQ(end(R"("add_generation_prompt":true)"), PromptEnd::kAnswer);
  EXPECT_EQ(end(R"("add_generation_prompt":false)"), PromptEnd::kMessages);
}

TEST(TemplateFields, AllowedTools) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],)";
  const std::string begin = R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":)";
  const Request request =
      Parsed(tools + begin + R"("required","tools":[{"type":"function","function":{"name":"g"}}]}})");
  EXPECT_EQ(request.tool_choice, ToolChoice::kRequired);
  std::vector<std::pair<std::string, bool>> callable;
  for (const Tool& tool : std::get<ChatPrompt>(request.prompt).tools)
    callable.emplace_back(tool.name, tool.callable);
  EXPECT_THAT(callable,
              ElementsAre(std::pair<std::string, bool>("f", false), std::pair<std::string, bool>("g", true)));
  EXPECT_EQ(Parsed(tools + begin + R"("auto","tools":[]}})").tool_choice, ToolChoice::kAuto);
  for (const auto& [fields, field] : std::vector<std::pair<std::string, std::string>>{
           {begin + R"("required","tools":[]}})", "tool_choice"},
           {begin + R"("some","tools":[]}})", "tool_choice.allowed_tools.mode"},
           {begin + R"("auto"}})", "tool_choice.allowed_tools.tools"},
           {begin + R"("auto","tools":[{"function":{"name":"h"}}]}})",
            "tool_choice.allowed_tools.tools[0].function"}}) {
    const auto chat = ParseChat(With(tools + fields));
    ASSERT_FALSE(chat) << fields;
    EXPECT_EQ(chat.error().field, field);
  }
}

TEST(TemplateFields, SamplingOfOtherServers) {
  const Request request = Parsed(
      R"("repetition_penalty":1.25,"stop_token_ids":[5,7],"dry_multiplier":0.5,"dry_sequence_breakers":["x"],)"
      R"("xtc_probability":0.5,"top_n_sigma":1,"mirostat":2,"mirostat_tau":3)");
  EXPECT_EQ(request.params.repeat_penalty, 1.25F);
  EXPECT_THAT(request.params.stop_token_ids, ElementsAre(5, 7));
  EXPECT_EQ(request.params.dry_multiplier, 0.5F);
  EXPECT_THAT(request.params.dry_sequence_breakers, ElementsAre("x"));
  EXPECT_EQ(request.params.xtc_probability, 0.5F);
  EXPECT_EQ(request.params.top_n_sigma, 1);
  EXPECT_EQ(request.params.mirostat, 2);
  EXPECT_EQ(request.params.mirostat_tau, 3);
}

TEST(TemplateFields, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages"},
      {R"("chat_template_kwargs":{"enable_thinking":"no"})", "chat_template_kwargs.enable_thinking"},
      {R"("enable_thinking":true,"chat_template_kwargs":{"thinking":false})",
       "chat_template_kwargs.thinking"},
      {R"("max_thinking_tokens":-1)", "max_thinking_tokens"},
      {R"("continue_final_message":true)", "continue_final_message"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"},
      {R"("stop_token_ids":["a"])", "stop_token_ids"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
      {R"("repetition_penalty":-1)", "repetition_penalty"},
      {R"("structured_output_whitespace":1)", "structured_output_whitespace"},
      {R"("mirostat":3)", "mirostat"}};
  for (const auto& [fields, field] : cases) {
    const auto chat = ParseChat(With(fields));
    ASSERT_FALSE(chat) << fields;
    EXPECT_EQ(chat.error().field, field) << fields;
    EXPECT_EQ(chat.error().code, ErrorCode::kInvalidArgument) << fields;
  }
}

TEST(UnsupportedFields, AreRefusedByNameUnlessTheyMeanNothing) {
  for (const auto& [fields, field] : std::vector<std::pair<std::string, std::string>>{
           {R"("guided_grammar":"root ::= x")", "guided_grammar"},
           {R"("bad_words":["x"])", "bad_words"},
           {R"("prompt_logprobs":0,"stream":true)", "prompt_logprobs"},
           {R"("use_beam_search":true)", "use_beam_search"},
           {R"("length_penalty":1.5)", "length_penalty"},
           {R"("skip_special_tokens":false)", "skip_special_tokens"},
           {R"("structured_outputs":{"structural_tag":"x"})", "structured_outputs.structural_tag"},
           {R"("best_of":2)", "best_of"}}) {
    const auto chat = ParseChat(With(fields));
    ASSERT_FALSE(chat) << fields;
    EXPECT_EQ(chat.error().code, ErrorCode::kUnsupported) << fields;
    EXPECT_EQ(chat.error().field, field);
    EXPECT_THAT(chat.error().message, HasSubstr(field));
    EXPECT_FALSE(ParseCompletion(R"({"model":"M","prompt":"x",)" + fields + "}")) << fields;
  }
  Parsed(
      R"("guided_grammar":null,"bad_words":[],"use_beam_search":false,"length_penalty":1.0,"skip_special_tokens":true,)"
      R"("structured_outputs":{"json":{"type":"null"}},"best_of":1,"no_repeat_ngram_size":0,"echo":false)");
  EXPECT_FALSE(ParseCompletion(R"({"model":"M","prompt":"x","chat_template_kwargs":{"a":1}})"));
}

}  // namespace
}  // namespace quire::api::openai
