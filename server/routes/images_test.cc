// Images in the requests of each dialect, up to the scheduler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawResponse;
using testing::TestDaemon;

// The bytes "hi" as an image, in each dialect: path and body.
const std::vector<std::pair<std::string, std::string>> kImageRequests = {
    {"/api/chat", R"({"model":"Demo","messages":[{"role":"user","content":"a","images":["aGk="]}]})"},
    {"/api/generate", R"({"model":"Demo","prompt":"a","images":["aGk="]})"},
    {"/v1/chat/completions",
     R"({"model":"Demo","messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
     R"({"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]})"},
    {"/chat/completions",
     R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:;base64,aGk"}}]}]})"},
    {"/v2/chat", R"({"model":"Demo","messages":[{"role":"user","content":[)"
                 R"({"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}]})"},
    {"/v1/responses",
     R"({"model":"Demo","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:;base64,aGk="}]}]})"},
    {"/v1/messages",
     R"({"model":"Demo","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image",)"
     R"("source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]})"},
    {"/v1/messages/count_tokens",
     R"({"model":"Demo","messages":[{"role":"user","content":[{"type":"image",)"
     R"("source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}]})"},
    {"/apply-template",
     R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:;base64,aGk="}]}]})"},
    {"/tokenize",
     R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:;base64,aGk="}]}]})"}};

TEST(Images, ReachAModelThatSeesThem) {
  for (const auto& [path, body] : kImageRequests) {
    TestDaemon daemon;
    daemon.backend().script.events = {
        api::Event(api::PromptReady{9, 4}), api::Event(api::TextDelta{"Hello", {}, 1}),
        api::Event(api::Finished{.reason = api::FinishReason::kStop, .stop_string = {}, .usage = {}})};
    daemon.backend().script.inspected.capabilities = {"completion", "vision"};
    EXPECT_EQ(daemon.Post(path, body).status, 200) << path;
    ASSERT_EQ(daemon.backend().seen.requests.size(), 1U) << path;
    const api::Prompt& prompt = daemon.backend().seen.requests[0].prompt;
    const auto* chat = std::get_if<api::ChatPrompt>(&prompt);
    const auto& messages = chat != nullptr ? chat->messages : std::get<api::ContinuedPrompt>(prompt).messages;
    ASSERT_EQ(messages.back().images.size(), 1U) << path;
    EXPECT_EQ(*messages.back().images[0].file, "hi") << path;
  }
}

TEST(Images, AreRefusedByNameForAModelThatTakesTextOnly) {
  for (const auto& [path, body] : kImageRequests) {
    TestDaemon daemon;
    daemon.backend().script.inspected.capabilities = {"completion"};
    const RawResponse response = daemon.Post(path, body);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_THAT(response.body, HasSubstr("does not support")) << path;
    EXPECT_TRUE(daemon.backend().seen.requests.empty()) << path;
  }
}

TEST(Images, ListsSayWhichModelsSeeThem) {
  for (const bool sees : {true, false}) {
    TestDaemon daemon;
    auto& inspected = daemon.backend().script.inspected;
    inspected.capabilities = {"completion"};
    if (sees) inspected.capabilities.emplace_back("vision");
    if (sees) inspected.projector_info_json = R"({"clip.has_vision_encoder":true})";
    const json capabilities = sees ? json{"completion", "vision"} : json{"completion"};
    EXPECT_EQ(json::parse(daemon.Get("/api/tags").body)["models"][0]["capabilities"], capabilities);
    const json show = json::parse(daemon.Post("/api/show", R"({"name":"demo"})").body);
    EXPECT_EQ(show["capabilities"], capabilities);
    EXPECT_EQ(show.contains("projector_info"), sees);
    if (sees) {
      EXPECT_EQ(show["projector_info"]["clip.has_vision_encoder"], true);
    }
    EXPECT_EQ(json::parse(daemon.Get("/v1/models").body)["data"][0]["capabilities"], capabilities);
    EXPECT_EQ(json::parse(daemon.Get("/props").body)["modalities"]["vision"], sees);
    const json claude = json::parse(daemon.Get("/v1/models", "anthropic-version: 2023-06-01\r\n").body);
    EXPECT_EQ(claude["data"][0]["capabilities"]["image_input"]["supported"], sees);
  }
}

// Else a model that sees would answer without having seen.
TEST(Images, AreNotLeftOutWhereTheModelCannotBeDescribed) {
  TestDaemon daemon;
  daemon.backend().script.inspected.error = api::Error{api::ErrorCode::kUnavailable, "no runner"};
  const RawResponse response = daemon.Post(kImageRequests[0].first, kImageRequests[0].second);
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("no runner"));
}

}  // namespace
}  // namespace quire::server
