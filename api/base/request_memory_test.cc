#include "api/base/request_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace quire::api {
namespace {

constexpr size_t kGrown = 1000;

// What one text of a request adds when it grows by some bytes.
template <class Text>
size_t GrowthBy(Request request, Text text) {
  text(request) = std::string(100, 'x');
  const size_t before = MemoryBytes(request);
  text(request) += std::string(kGrown, 'x');
  return MemoryBytes(request) - before;
}

template <class P>
P& Get(Request& request) {
  return std::get<P>(request.prompt);
}

TEST(RequestMemory, CountsEveryText) {
  Request chat;
  chat.prompt = ChatPrompt{.messages = {{.role = "user", .content = "", .tool_calls = {ToolCall{}}}},
                           .tools = {Tool{}}};
  chat.format.emplace();
  chat.params.stop = {""};
  using Text = std::string& (*)(Request&);
  const std::vector<std::pair<const char*, Text>> texts = {
      {"role", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).messages[0].role; }},
      {"content", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).messages[0].content; }},
      {"thinking", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).messages[0].thinking; }},
      {"tool_name", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).messages[0].tool_name; }},
      {"call", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).messages[0].tool_call_id; }},
      {"id", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).messages[0].tool_calls[0].id; }},
      {"arguments",
       [](Request& r) -> std::string& {
         return Get<ChatPrompt>(r).messages[0].tool_calls[0].arguments_json;
       }},
      {"tool", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).tools[0].name; }},
      {"schema", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).tools[0].parameters_json; }},
      {"definition", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).tools[0].definition_json; }},
      {"kwargs", [](Request& r) -> std::string& { return Get<ChatPrompt>(r).template_arguments_json; }},
      {"format", [](Request& r) -> std::string& { return r.format->text; }},
      {"stop", [](Request& r) -> std::string& { return r.params.stop[0]; }},
      {"salt", [](Request& r) -> std::string& { return r.client.cache_salt; }},
      {"model", [](Request& r) -> std::string& { return r.model_name; }},
      {"template", [](Request& r) -> std::string& { return r.go_template; }},
  };
  for (const auto& [name, text] : texts) EXPECT_EQ(GrowthBy(chat, text), kGrown) << name;
}

TEST(RequestMemory, CountsImages) {
  const auto with = [](size_t bytes) {
    Request request;
    Message message{"user", "see"};
    message.images = {{0, std::make_shared<const std::string>(100, 'i')},
                      {3, std::make_shared<const std::string>(bytes, 'i')}};
    request.prompt = ChatPrompt{.messages = {std::move(message)}};
    return request;
  };
  EXPECT_EQ(MemoryBytes(with(100 + kGrown)) - MemoryBytes(with(100)), kGrown);
  EXPECT_EQ(ImageBytes(with(kGrown).prompt), 100 + kGrown);
  EXPECT_EQ(ImageBytes(RawPrompt{std::string(kGrown, 'x')}), 0U);
}

TEST(RequestMemory, CountsEveryKindOfPrompt) {
  const std::string text(kGrown, 'x');
  const std::vector<TokenId> tokens(kGrown / sizeof(TokenId));
  const std::vector<std::pair<Prompt, size_t>> prompts = {
      {RawPrompt{text}, 1},
      {TokenPrompt{tokens}, 1},
      {ContinuedPrompt{tokens, {{"user", text}}}, 2},
      {EmbedPrompt{.text = text, .tokens = tokens, .document = text}, 3},
      {FimPrompt{text, text, {{text, text}}}, 4},
      {MixedPrompt{{{text, tokens}}}, 2},
  };
  for (const auto& [prompt, times] : prompts) {
    EXPECT_GE(HeapBytes(prompt), times * kGrown) << prompt.index();
    EXPECT_LT(HeapBytes(prompt), times * kGrown + 500) << prompt.index();
  }
}

// 85,000 messages of 13 bytes in a body of 1.1 MB.
TEST(RequestMemory, IsAboutWhatTheAllocatorGives) {
  const auto allocated = [] {
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const auto check = [&allocated](size_t messages, const std::string& content) {
    const size_t before = allocated();
    Request request;
    request.prompt = ChatPrompt{.messages = std::vector<Message>(messages, {"user", content})};
    const size_t taken = allocated() - before;
    EXPECT_GT(MemoryBytes(request), taken * 9 / 10) << messages;
    EXPECT_LT(MemoryBytes(request), taken * 11 / 10 + sizeof(Request)) << messages;
    return MemoryBytes(request);
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has an allocator of its own";
#endif
  EXPECT_GT(check(85'000, ""), size_t{15} << 20);
  check(10'000, std::string(100, 'x'));
  check(1, std::string(size_t{1} << 20, 'x'));
}

}  // namespace
}  // namespace quire::api
