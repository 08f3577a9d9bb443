#include "server/fleet/prompt_chain.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

std::string Chat(std::string_view messages, std::string_view more = "") {
  return std::string(R"({"model":"quire-demo",)").append(more) + R"("messages":[)" + std::string(messages) +
         "]}";
}

constexpr std::string_view kSystem = R"({"role":"system","content":"Be brief."})";
constexpr std::string_view kFirst = R"({"role":"user","content":"Hi"})";
constexpr std::string_view kRest =
    R"({"role":"assistant","content":"Hello"},{"role":"user","content":"And?"})";

std::string Joined(std::initializer_list<std::string_view> messages) {
  std::string out;
  for (const std::string_view message : messages) out += (out.empty() ? "" : ",") + std::string(message);
  return out;
}

TEST(PromptChain, ALaterTurnContinuesTheChainOfTheFirst) {
  const auto first = ReadPromptChain(Chat(Joined({kSystem, kFirst})), "");
  const auto later = ReadPromptChain(Chat(Joined({kSystem, kFirst, kRest})), "");
  ASSERT_TRUE(first && later);
  EXPECT_EQ(first->model, "quire-demo:latest");
  ASSERT_EQ(first->ends.size(), 2U);
  ASSERT_EQ(later->ends.size(), 4U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(first->ends[i].hash, later->ends[i].hash);
  EXPECT_EQ(first->conversation, later->conversation);
  EXPECT_EQ(first->conversation, first->ends[1].hash);
  EXPECT_EQ(first->bytes, first->ends[1].bytes);
  EXPECT_GT(later->bytes, first->bytes);
}

TEST(PromptChain, OtherMessagesModelsKeysAndSaltsAreOtherChains) {
  const auto chain = ReadPromptChain(Chat(kFirst), "");
  for (const auto& [body, credential] :
       {std::pair{Chat(R"({"role":"user","content":"Ho"})"), ""}, std::pair{Chat(kFirst), "Bearer x"},
        std::pair{Chat(kFirst, R"("cache_salt":"s",)"), ""}, std::pair{Chat(kFirst, R"("system":"s",)"), ""},
        std::pair{Chat(kFirst, R"("tools":[{}],)"), ""}}) {
    const auto other = ReadPromptChain(body, credential);
    ASSERT_TRUE(other);
    EXPECT_NE(other->conversation, chain->conversation) << body;
  }
  // Sampling and marks for caches change nothing.
  const auto same = ReadPromptChain(
      Chat(R"({"role":"user","content":"Hi","cache_control":{"type":"ephemeral"}})", R"("temperature":1,)"),
      "");
  EXPECT_EQ(same->conversation, chain->conversation);
}

TEST(PromptChain, TextsAreCutIntoPieces) {
  const std::string text(PromptChain::kPieceBytes * 2 + 10, 'a');
  const auto chain = ReadPromptChain(R"({"model":"m","prompt":")" + text + R"("})", "");
  const auto longer = ReadPromptChain(R"({"model":"m","prompt":")" + text + R"(more"})", "");
  ASSERT_TRUE(chain && longer);
  ASSERT_EQ(chain->ends.size(), 2U);
  EXPECT_EQ(chain->ends[1].hash, longer->ends[1].hash);
  EXPECT_EQ(chain->conversation, longer->conversation);
  EXPECT_EQ(chain->bytes, text.size());
  EXPECT_TRUE(ReadPromptChain(R"({"model":"m","input":""})", ""));
}

TEST(PromptChain, AContextOfTokensIsTheBegin) {
  std::string ids = "1";
  for (int i = 2; i <= 100; ++i) ids += "," + std::to_string(i);
  const auto second = ReadPromptChain(R"({"model":"m","context":[)" + ids + R"(],"prompt":"a"})", "");
  const auto third = ReadPromptChain(R"({"model":"m","context":[)" + ids + R"(,7,8],"prompt":"b"})", "");
  ASSERT_TRUE(second && third);
  EXPECT_EQ(second->conversation, third->conversation);
  EXPECT_EQ(second->ends.front().hash, third->ends.front().hash);
}

TEST(PromptChain, WhatHasNoPromptHasNoChain) {
  for (const char* body : {"", "no JSON", "[]", R"({"model":"m"})", R"({"model":"m","messages":7})"}) {
    EXPECT_FALSE(ReadPromptChain(body, "")) << body;
  }
  const auto unnamed = ReadPromptChain(R"({"prompt":"a"})", "");
  ASSERT_TRUE(unnamed);
  EXPECT_EQ(unnamed->model, "");
}

}  // namespace
}  // namespace quire::server
