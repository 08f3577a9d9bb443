#include "api/llama_server/tokenize.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::api {
namespace {

std::string FieldOf(const std::string& body, bool ids) {
  const auto error = ids ? ParseDetokenize(body).error() : ParseTokenize(body).error();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << body;
  return error.field;
}

TEST(Tokenize, BodiesBecomeRequestsForAPromptAlone) {
  const auto plain = ParseTokenize(R"({"content":"a<b>"})");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->model, "");
  Request request = ToRequest(*plain, {});
  EXPECT_TRUE(request.prompt_only && request.return_context);
  EXPECT_FALSE(request.return_prompt_text);
  EXPECT_EQ(std::get<RawPrompt>(request.prompt).text, "a<b>");
  EXPECT_FALSE(std::get<RawPrompt>(request.prompt).add_special);
  EXPECT_TRUE(std::get<RawPrompt>(request.prompt).parse_special);

  const auto full = ParseTokenize(
      R"({"model":"m","content":"","add_special":true,"parse_special":false,"with_pieces":true})");
  ASSERT_TRUE(full) << full.error().message;
  EXPECT_EQ(full->model, "m");
  request = ToRequest(*full, {});
  EXPECT_TRUE(std::get<RawPrompt>(request.prompt).add_special);
  EXPECT_FALSE(std::get<RawPrompt>(request.prompt).parse_special);
  EXPECT_TRUE(request.return_prompt_text && request.logprobs);

  const auto ids = ParseDetokenize(R"({"tokens":[1,2.0,3]})");
  ASSERT_TRUE(ids) << ids.error().message;
  request = ToRequest(*ids);
  EXPECT_TRUE(request.prompt_only && request.return_prompt_text);
  EXPECT_EQ(std::get<TokenPrompt>(request.prompt).tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_TRUE(ParseDetokenize(R"({"tokens":[]})"));
}

TEST(Tokenize, VllmsBodies) {
  const auto text = ParseTokenize(R"({"model":"m","prompt":"a<b>","return_token_strs":true})");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_TRUE(text->counts);
  Request request = ToRequest(*text, {});
  EXPECT_EQ(std::get<RawPrompt>(request.prompt).text, "a<b>");
  EXPECT_TRUE(std::get<RawPrompt>(request.prompt).add_special) << "as vLLM has it by default";
  EXPECT_TRUE(request.prompt_only && request.return_context && request.return_prompt_text &&
              request.logprobs);
  const auto bare = ParseTokenize(R"({"prompt":"a","add_special_tokens":false})");
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_FALSE(std::get<RawPrompt>(ToRequest(*bare, {}).prompt).add_special);

  const auto chat =
      ParseTokenize(R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false})");
  ASSERT_TRUE(chat) << chat.error().message;
  request = ToRequest(*chat, {});
  EXPECT_TRUE(request.prompt_only && request.return_context);
  EXPECT_FALSE(request.return_prompt_text || request.logprobs);
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).messages[0].content, "Hi");
  EXPECT_EQ(std::get<ChatPrompt>(request.prompt).end, PromptEnd::kMessages);
}

TEST(Tokenize, ErrorsNameTheField) {
  EXPECT_EQ(FieldOf("{}", false), "content");
  EXPECT_EQ(FieldOf(R"({"content":5})", false), "content");
  EXPECT_EQ(FieldOf(R"({"prompt":[1]})", false), "prompt");
  EXPECT_EQ(FieldOf(R"({"messages":[]})", false), "messages");
  EXPECT_EQ(FieldOf(R"({"content":"a","with_pieces":1})", false), "with_pieces");
  for (const std::string tokens : {"null", "5", "\"a\"", "{}", "[\"a\"]", "[-1]", "[1.5]", "[2147483648]",
                                   "[1e308]", "[null]", "[[]]"}) {
    EXPECT_EQ(FieldOf("{\"tokens\":" + tokens + "}", true), "tokens") << tokens;
  }
}

TEST(Tokenize, Replies) {
  Finished finished;
  finished.context = {7, 8};
  TextDelta delta{"h\xC3\xA9", {{{"h\xC3", 7, 0}, {}}, {{"\xA9", 8, 0}, {}}}, 0};
  using Shape = TokenizeEncoder::Shape;
  const auto reply = [&](Shape shape) {
    TokenizeEncoder encoder(shape);
    EXPECT_EQ(encoder.OnEvent(PromptReady{2, 0}), "");
    EXPECT_EQ(encoder.OnEvent(delta), "");
    return encoder.OnEvent(finished);
  };
  EXPECT_EQ(reply(Shape::kIds), R"({"tokens":[7,8]})");
  EXPECT_EQ(reply(Shape::kPieces), R"({"tokens":[{"id":7,"piece":[104,195]},{"id":8,"piece":[169]}]})");
  EXPECT_EQ(reply(Shape::kText), "{\"content\":\"h\xC3\xA9\",\"prompt\":\"h\xC3\xA9\"}");
  TokenizeEncoder counted(Shape::kCounted, /*with_pieces=*/false, 9);
  EXPECT_EQ(counted.OnEvent(finished), R"({"count":2,"max_model_len":9,"token_strs":null,"tokens":[7,8]})");
  delta.logprobs[0].chosen.bytes = "h\"";
  EXPECT_EQ(reply(Shape::kPieces), R"({"tokens":[{"id":7,"piece":"h\""},{"id":8,"piece":[169]}]})");
  finished.context = {0, 2147483647, 151643};
  EXPECT_EQ(reply(Shape::kIds), R"({"tokens":[0,2147483647,151643]})");
  finished.context = {};
  EXPECT_EQ(reply(Shape::kIds), R"({"tokens":[]})");
}

}  // namespace
}  // namespace quire::api
