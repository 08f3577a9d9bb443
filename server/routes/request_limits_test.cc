// What bodies become when they are parsed counts against the memory of all and of each party.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api/base/request.h"
#include "api/base/sha256.h"
#include "server/testing/test_daemon.h"

namespace quire::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::RawClient;
using testing::RawResponse;
using testing::TestDaemon;

constexpr size_t kKibibyte = 1024;
constexpr size_t kMebibyte = kKibibyte * kKibibyte;

struct RequestLimits : public ::testing::Test {
  // One client may have half: 4 MiB.
  explicit RequestLimits(uint64_t bytes = 8 * kMebibyte) : daemon_(Small(bytes)) {}
  static TransportLimits Small(uint64_t bytes) {
    TransportLimits limits;
    limits.connections = 8;
    limits.parser.body_bytes = kMebibyte;
    limits.buffered_bodies_bytes = bytes;
    return limits;
  }
  void SetUp() override {
    daemon_.backend().script.events = {api::Event(api::PromptReady{3, 0}),
                                       api::Event(api::TextDelta{"hi", {}, 1}), api::Event(api::Finished{})};
  }
  // A message has 26 bytes of the body, counts as some 900 bytes while it is parsed, and then
  // sizeof(api::Message).
  static json Chat(size_t messages) {
    const json message = {{"role", "user"}, {"content", ""}};
    return {{"model", "demo"}, {"stream", false}, {"messages", std::vector<json>(messages, message)}};
  }
  static json Choices(size_t messages, int n) {
    json body = Chat(messages);
    body["n"] = n;
    return body;
  }
  uint64_t Counted() {
    uint64_t bytes = 0;
    daemon_.OnIoThread([&] { bytes = daemon_.server().buffered_bodies_bytes(); });
    return bytes;
  }
  // Since the last AwaitNothingCounted().
  void AwaitSubmitted(size_t requests) {
    size_t seen = 0;
    while (seen < requests) {
      daemon_.OnIoThread([&] { seen = daemon_.backend().seen.requests.size(); });
      std::this_thread::yield();
    }
  }
  void AwaitNothingCounted() {
    while (Counted() > 0) std::this_thread::yield();
    daemon_.OnIoThread([&] { daemon_.backend().seen.requests.clear(); });
  }

  TestDaemon daemon_;
};

struct MessageLimits : public RequestLimits {
  MessageLimits() : RequestLimits(16 * kMebibyte) {}
};

TEST_F(MessageLimits, ManyShortMessagesCountAsWhatTheyTake) {
  constexpr size_t kMessages = 6'300;
  auto& events = daemon_.backend().script.events;
  events.insert(events.end() - 1, testing::Block{});
  const std::string body = Chat(kMessages).dump();
  for (const char* path : {"/api/chat", "/v1/chat/completions"}) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (size_t i = 1; i <= 2; ++i) {
      clients.push_back(std::make_unique<RawClient>(daemon_.port()));
      clients.back()->Send(testing::PostBytes(path, body));
      AwaitSubmitted(i);
      EXPECT_GT(Counted(), i * kMessages * sizeof(api::Message)) << path;
    }
    const RawResponse third = daemon_.Post(path, body);
    EXPECT_EQ(third.status, 429) << path;
    EXPECT_EQ(third.headers.at("retry-after"), "1");
    EXPECT_THAT(third.body, HasSubstr("of this client in memory"));
    clients.clear();
    AwaitNothingCounted();
  }
}

TEST_F(MessageLimits, SmallRequestsOfTheSamePartyHaveRoom) {
  auto& events = daemon_.backend().script.events;
  const auto answered = events;
  events.insert(events.end() - 1, testing::Block{});
  RawClient first(daemon_.port());
  first.Send(testing::PostBytes("/api/chat", Chat(6'300).dump()));
  daemon_.backend().blocked.get_future().wait();
  daemon_.OnIoThread([&] { daemon_.backend().script.events = answered; });
  EXPECT_EQ(daemon_.Post("/api/chat", Chat(8'000).dump()).status, 429);
  EXPECT_EQ(daemon_.Post("/api/chat", Chat(30).dump()).status, 200);
}

// Pieces are smaller for those that have no room.
TEST_F(RequestLimits, UploadsCountAsWhatTheyGather) {
  std::vector<std::unique_ptr<RawClient>> uploads;
  for (char digit = '1'; digit <= '6'; ++digit) {
    uploads.push_back(std::make_unique<RawClient>(daemon_.port()));
    uploads.back()->Send("POST /api/blobs/sha256:" + std::string(64, digit) +
                         " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4398046511104\r\n\r\n" +
                         std::string(500 * kKibibyte, 'b'));
  }
  while (Counted() < 4 * kMebibyte) std::this_thread::yield();
  const std::string blob(300 * kKibibyte, 'c');
  EXPECT_EQ(daemon_.Post("/api/blobs/sha256:" + api::Sha256Of(blob), blob).status, 201);
  EXPECT_EQ(Counted(), 4 * kMebibyte);
  uploads.clear();
  AwaitNothingCounted();
}

// Before they are copied.
TEST_F(RequestLimits, ChoicesCountAsTheirCopies) {
  const RawResponse refused = daemon_.Post("/v1/chat/completions", Choices(1'000, 128).dump());
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body,
              HasSubstr("with a copy for each choice, takes more than 4194304 bytes of memory"));
  EXPECT_TRUE(daemon_.backend().seen.requests.empty());
  const json prompts = {{"model", "demo"}, {"prompt", std::vector<std::string>(10, std::string(1000, 'x'))}};
  json many = prompts;
  many["prompt"] = std::vector<std::string>(4, std::string(40 * kKibibyte, 'x'));
  many["n"] = 32;
  EXPECT_EQ(daemon_.Post("/v1/completions", many.dump()).status, 413);
  EXPECT_EQ(daemon_.Post("/v1/completions", prompts.dump()).status, 200);
  EXPECT_EQ(daemon_.Post("/v1/chat/completions", Choices(100, 128).dump()).status, 200);
  AwaitNothingCounted();
}

// A model's own messages and system text come before those of each choice.
TEST_F(RequestLimits, WhatAModelAddsToEachChoiceCounts) {
  const json made = {
      {"model", "talks"}, {"from", "demo"}, {"stream", false}, {"system", std::string(100 * kKibibyte, 's')}};
  ASSERT_EQ(daemon_.Post("/api/create", made.dump()).status, 200);
  json body = Choices(1, 64);
  body["model"] = "talks";
  EXPECT_EQ(daemon_.Post("/v1/chat/completions", body.dump()).status, 413);
  body["n"] = 8;
  EXPECT_EQ(daemon_.Post("/v1/chat/completions", body.dump()).status, 200);
}

// It counts once, not as body and as request.
TEST_F(RequestLimits, ABodyIsFreedOnceItIsParsed) {
  auto& events = daemon_.backend().script.events;
  events.insert(events.end() - 1, testing::Block{});
  const std::string text(900 * kKibibyte, 'x');
  RawClient client(daemon_.port());
  client.Send(testing::PostBytes("/api/generate", json{{"model", "demo"}, {"prompt", text}}.dump()));
  daemon_.backend().blocked.get_future().wait();
  EXPECT_GE(Counted(), text.size());
  EXPECT_LT(Counted(), text.size() + 100 * kKibibyte);
  daemon_.OnIoThread([&] { daemon_.backend().Release(); });
  EXPECT_EQ(client.Read().status, 200);
  AwaitNothingCounted();
}

TEST_F(RequestLimits, TextsThatAreEmbeddedCountToo) {
  api::Finished finished;
  finished.embedding = {0.5F};
  daemon_.backend().script.events = {testing::Block{}, api::Event(api::PromptReady{3, 0}),
                                     api::Event(finished)};
  const json body = {{"model", "demo"}, {"input", std::vector<std::string>(2000, "x")}};
  for (const char* path : {"/api/embed", "/v1/rerank"}) {
    RawClient client(daemon_.port());
    json sent = body;
    sent["query"] = "q";
    sent["documents"] = body["input"];
    client.Send(testing::PostBytes(path, sent.dump()));
    AwaitSubmitted(1);
    EXPECT_GT(Counted(), 2000 * sizeof(api::EmbedPrompt)) << path;
    client.Close();
    AwaitNothingCounted();
  }
}

}  // namespace
}  // namespace quire::server
