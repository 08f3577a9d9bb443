// Bounds of what bodies of /completion multiply, and of the members that a reply selects.
#include "api/llama_server/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/base/limits.h"

namespace quire::api::llama_server {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

Error CompletionErrorOf(const json& body) {
  auto parsed = ParseCompletion(body.dump());
  EXPECT_FALSE(parsed);
  return parsed ? Error{} : std::move(parsed).error();
}

TEST(LlamaCompletion, ChoicesOfALargeBodyAreBoundedUnderBothNames) {
  const std::string text(size_t{9} << 20, 'x');
  for (const char* name : {"n", "n_cmpl"}) {
    const Error error = CompletionErrorOf({{"prompt", text}, {name, 8}});
    EXPECT_EQ(error.code, ErrorCode::kTooLarge) << name;
    EXPECT_EQ(error.field, name);
    EXPECT_TRUE(ParseCompletion(json{{"prompt", text}, {name, 7}}.dump())) << name;
  }
  EXPECT_EQ(CompletionErrorOf({{"prompt", {"a", "b"}}, {"n_cmpl", 65}}).field, "n_cmpl");
}

// As llama.cpp's clients say that there is none.
TEST(LlamaCompletion, NegativeLimitsAreNone) {
  auto parsed = ParseCompletion(R"({"prompt":"p","t_max_predict_ms":-1,"n_indent":-2147483648})");
  ASSERT_TRUE(parsed);
  const std::vector<Request> requests = ToRequests(*std::move(parsed), {});
  EXPECT_EQ(requests.at(0).predict_ms_max, 0);
  EXPECT_EQ(requests.at(0).indent_min, 0);
}

TEST(LlamaCompletion, EveryPromptHasTheFormatWithinTheBudget) {
  const std::vector<std::string> prompts(128, "x");
  const auto body = [&prompts](size_t bytes) {
    return json{{"prompt", prompts}, {"grammar", std::string(bytes, 'g')}};
  };
  EXPECT_TRUE(ParseCompletion(body(kBodyBytesMax / 128).dump()));
  const Error error = CompletionErrorOf(body(kBodyBytesMax / 128 + 1));
  EXPECT_EQ(error.code, ErrorCode::kTooLarge);
  EXPECT_EQ(error.field, "grammar");
}

TEST(LlamaCompletion, ResponseFieldsAreFewAndSelectEachMemberOnce) {
  const auto parsed =
      ParseCompletion(R"({"prompt":"p","response_fields":["prompt","content","prompt","content"]})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(parsed->response_fields, ElementsAre("prompt", "content"));
  const std::vector<std::string> many(kResponseFieldsMax + 1, "prompt");
  EXPECT_EQ(CompletionErrorOf({{"prompt", "p"}, {"response_fields", many}}).field, "response_fields");
}

}  // namespace
}  // namespace quire::api::llama_server
