#include "api/base/text_bounds.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace quire::api {
namespace {

Message FullMessage() {
  return {.role = "assistant",
          .content = "",
          .thinking = "",
          .tool_calls = {{.id = "", .name = "", .arguments_json = ""}},
          .tool_name = "",
          .tool_call_id = ""};
}

// What one text of the prompt adds when it grows by some bytes.
template <class P, class Text>
size_t AddedBy(P prompt, Text text) {
  const size_t before = TextBytes(prompt);
  text(prompt) += std::string(1000, 'x');
  return TextBytes(prompt) - before;
}

TEST(TextBytes, CountsEveryTextOfAChat) {
  const ChatPrompt chat{.messages = {FullMessage()}, .tools = {{.name = "f"}}};
  using Text = std::string& (*)(ChatPrompt&);
  const std::vector<std::pair<const char*, Text>> texts = {
      {"role", [](ChatPrompt& c) -> std::string& { return c.messages[0].role; }},
      {"content", [](ChatPrompt& c) -> std::string& { return c.messages[0].content; }},
      {"thinking", [](ChatPrompt& c) -> std::string& { return c.messages[0].thinking; }},
      {"tool_name", [](ChatPrompt& c) -> std::string& { return c.messages[0].tool_name; }},
      {"tool_call_id", [](ChatPrompt& c) -> std::string& { return c.messages[0].tool_call_id; }},
      {"id", [](ChatPrompt& c) -> std::string& { return c.messages[0].tool_calls[0].id; }},
      {"name", [](ChatPrompt& c) -> std::string& { return c.messages[0].tool_calls[0].name; }},
      {"arguments", [](ChatPrompt& c) -> std::string& { return c.messages[0].tool_calls[0].arguments_json; }},
      {"definition", [](ChatPrompt& c) -> std::string& { return c.tools[0].definition_json; }},
      {"template arguments", [](ChatPrompt& c) -> std::string& { return c.template_arguments_json; }},
  };
  for (const auto& [name, text] : texts) EXPECT_EQ(AddedBy(chat, text), 1000U) << name;
}

TEST(TextBytes, CountsEveryTextThatIsEmbedded) {
  using Text = std::string& (*)(EmbedPrompt&);
  const std::vector<std::pair<const char*, Text>> texts = {
      {"text", [](EmbedPrompt& e) -> std::string& { return e.text; }},
      {"document", [](EmbedPrompt& e) -> std::string& { return e.document; }},
      {"instruction", [](EmbedPrompt& e) -> std::string& { return e.instruction; }},
      {"prompt_name", [](EmbedPrompt& e) -> std::string& { return e.prompt_name; }},
  };
  for (const auto& [name, text] : texts) EXPECT_EQ(AddedBy(EmbedPrompt{}, text), 1000U) << name;
}

TEST(TextBytes, CountsMessagesAndCallsWithoutText) {
  ContinuedPrompt prompt{.context = {}, .messages = std::vector<Message>(100)};
  EXPECT_EQ(TextBytes(prompt), 100 * sizeof(Message));
  prompt.messages[0].tool_calls.resize(50);
  EXPECT_EQ(TextBytes(prompt), 100 * sizeof(Message) + 50 * sizeof(ToolCall));
}

TEST(TextBytes, CountsTextsAndTokensOfOtherPrompts) {
  EXPECT_EQ(TextBytes(RawPrompt{"abc"}), 3U);
  EXPECT_EQ(TextBytes(TokenPrompt{{1, 2}}), 2 * sizeof(TokenId));
  EXPECT_EQ(TextBytes(FimPrompt{.prefix = "a", .suffix = "bc", .files = {{"n", "text"}}}),
            8 + sizeof(FimFile));
  EXPECT_EQ(TextBytes(MixedPrompt{{{.text = "abc"}, {.text = "", .tokens = {1}}}}),
            3 + 2 * sizeof(MixedPrompt::Piece) + sizeof(TokenId));
}

}  // namespace
}  // namespace quire::api
