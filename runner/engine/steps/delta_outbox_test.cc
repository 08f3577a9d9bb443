#include "runner/engine/steps/delta_outbox.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "api/base/utf8.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

constexpr auto kPieceBytesMax = DeltaOutbox::kPieceBytesMax;

struct Client {
  std::vector<api::TextDelta> deltas;
  bool finished = false;

  DeltaOutbox::Emit Taking() {
    return [this](api::Event event) {
      EXPECT_FALSE(finished) << "an event after the end";
      if (auto* delta = std::get_if<api::TextDelta>(&event)) deltas.push_back(std::move(*delta));
      finished = finished || std::holds_alternative<api::Finished>(event);
    };
  }
  std::string Joined(std::string api::TextDelta::*field) const {
    std::string joined;
    for (const auto& delta : deltas) joined += delta.*field;
    return joined;
  }
};

std::string Repeated(std::string_view text, size_t bytes) {
  std::string repeated;
  while (repeated.size() < bytes) repeated += text;
  return repeated;
}

TEST(DeltaOutbox, LargeTextLeavesInPiecesOfWholeCharacters) {
  Client client;
  DeltaOutbox outbox(client.Taking());
  api::TextDelta delta{.text = "x" + Repeated("😀", size_t{3} << 20), .tokens = 7};
  delta.thinking = Repeated("é", size_t{1} << 20);
  delta.token_ids = {1, 2, 3, 4, 5, 6, 7};
  for (int i = 0; i < 3000; ++i) delta.tool_calls.push_back({"id", "f", R"({"a":1})"});
  delta.tool_calls.push_back({"id", "large", std::string(2 * kPieceBytesMax, ' ')});
  const api::TextDelta whole = delta;
  outbox.AddDelta(std::move(delta));
  EXPECT_EQ(client.Joined(&api::TextDelta::text), whole.text);
  EXPECT_EQ(client.Joined(&api::TextDelta::thinking), whole.thinking);
  size_t calls = 0;
  for (size_t i = 0; i < client.deltas.size(); ++i) {
    const api::TextDelta& piece = client.deltas[i];
    EXPECT_LE(piece.text.size() + piece.thinking.size(), kPieceBytesMax);
    EXPECT_TRUE(api::IsValidUtf8(piece.text) && api::IsValidUtf8(piece.thinking)) << i;
    EXPECT_EQ(piece.tokens, i == 0 ? 7 : 0);
    EXPECT_EQ(piece.token_ids.size(), i == 0 ? 7U : 0U);
    calls += piece.tool_calls.size();
  }
  EXPECT_EQ(calls, 3001U);
  EXPECT_EQ(client.deltas.back().tool_calls.back().name, "large");
  EXPECT_LT(client.deltas.size(), 80U);
}

// What one token lets go may be more deltas than there is credit for, and the daemon stops a runner that
// sends them.
TEST(DeltaOutbox, NoMoreLeavesThanThereIsCreditFor) {
  Client client;
  DeltaOutbox outbox(client.Taking());
  const int32_t count = 3 * api::ipc::kInitialCredit;
  for (int32_t i = 0; i < count; ++i) outbox.AddDelta({.text = std::to_string(i) + " "});
  outbox.Add(api::Finished{});
  EXPECT_EQ(client.deltas.size(), api::ipc::kInitialCredit);
  EXPECT_FALSE(client.finished || outbox.empty());
  EXPECT_TRUE(outbox.backpressured());
  outbox.AddCredit(10);
  EXPECT_EQ(client.deltas.size(), api::ipc::kInitialCredit + 10U);
  EXPECT_EQ(client.deltas.back().text, std::to_string(api::ipc::kInitialCredit + 9) + " ");
  outbox.AddCredit(count);
  EXPECT_EQ(client.deltas.size(), static_cast<size_t>(count));
  EXPECT_TRUE(client.finished && outbox.empty());
}

TEST(DeltaOutbox, AResumedAnswerSkipsThePiecesThatTheClientHas) {
  const std::string text = Repeated("0123456789", 10 * kPieceBytesMax);
  Client whole;
  DeltaOutbox(whole.Taking()).AddDelta({.text = text});
  ASSERT_GE(whole.deltas.size(), 10U);
  for (size_t had = 0; had <= whole.deltas.size(); ++had) {
    Client rest;
    DeltaOutbox outbox(rest.Taking());
    outbox.Resume(static_cast<int64_t>(had), api::ipc::kInitialCredit);
    outbox.AddDelta({.text = text});
    ASSERT_EQ(rest.deltas.size(), whole.deltas.size() - had);
    for (size_t i = 0; i < rest.deltas.size(); ++i)
      EXPECT_EQ(rest.deltas[i].text, whole.deltas[had + i].text);
  }
}

// The last token lets go more than any client has given credit for.
class AlternatingParser final : public output::Parser {
 public:
  static constexpr int kTurns = 600;

  void Feed(std::string_view, output::OutputChunks&) override {}
  void Finish(output::OutputChunks& chunks) override {
    for (int i = 0; i < kTurns; ++i) {
      chunks.push_back({output::OutputChunk::Kind::kThinking, "a"});
      chunks.push_back({output::OutputChunk::Kind::kText, std::to_string(i) + " "});
    }
  }
  bool IsMarker(std::string_view) const override { return false; }
  void FeedToken(std::string_view, output::OutputChunks&) override {}
  bool thinking() const override { return false; }
  bool calling() const override { return false; }
};

TEST(DeltaOutbox, AnAnswerThatEndsWithoutCreditKeepsNobodyOut) {
  EngineHarness harness({.limits = {.running_max = 1, .cache_bytes = kPlenty}});
  const std::string hello = harness.Generate(Greedy("Hello!", 8)).text();
  const api::RequestId id{1000};
  BuiltPrompt prompt{.tokens = {1, 2, 3}, .num_ctx = 64};
  prompt.output = std::make_unique<AlternatingParser>();
  harness.Post(Arrived{id});
  harness.Post(PromptBuilt{id, Greedy("", 2), std::move(prompt), Clock::now()});
  const Outcome stalled = harness.WaitUntil(
      id, [](const Outcome& outcome) { return outcome.deltas.size() >= api::ipc::kInitialCredit; });
  EXPECT_FALSE(stalled.ended());
  EXPECT_EQ(harness.Generate(Greedy("Hello!", 8)).text(), hello) << "it gives up its place";
  EXPECT_EQ(harness.Now(id).deltas.size(), api::ipc::kInitialCredit);
  harness.Post(api::ipc::Credit{id, 2 * AlternatingParser::kTurns});
  const Outcome whole = harness.Wait(id);
  ASSERT_TRUE(whole.finished);
  EXPECT_EQ(whole.deltas.size(), AlternatingParser::kTurns);
  EXPECT_TRUE(whole.text().starts_with("0 1 2 ") && whole.text().ends_with(" 598 599 "));
  EXPECT_EQ(harness.Generate(Greedy("Hello!", 8)).text(), hello) << "and is gone";
}

}  // namespace
}  // namespace quire::runner::engine
