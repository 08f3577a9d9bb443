// What the engine shows to those who look.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <string>

#include "runner/engine/steps/token_text.h"
#include "runner/engine/testing/engine_harness.h"

namespace quire::runner::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

api::ipc::CacheInspected CacheOf(EngineHarness& harness, api::ipc::InspectCache question) {
  std::promise<api::ipc::CacheInspected> answer;
  question.nodes_max = question.nodes_max > 0 ? question.nodes_max : api::ipc::kInspectedNodesMax;
  harness.Post(
      CacheQuestion{question, [&answer](auto inspected) { answer.set_value(std::move(inspected)); }});
  return answer.get_future().get();
}

api::ipc::EngineInspected EngineOf(EngineHarness& harness) {
  std::promise<api::ipc::EngineInspected> answer;
  harness.Post(EngineQuestion{{9}, [&answer](auto inspected) { answer.set_value(std::move(inspected)); }});
  return answer.get_future().get();
}

api::Request Of(const std::string& tenant, std::string question, int32_t num_predict = 4) {
  api::Request request = Greedy(std::move(question), num_predict);
  request.client.tenant = tenant;
  return request;
}

std::string KeyOf(const std::string& tenant) {
  return api::Client{.tenant = tenant, .cache_salt = ""}.IsolationKey();
}

TEST(EngineInspect, AKeySeesTheTextOfItsOwnPrefixesOnly) {
  EngineHarness harness;
  (void)harness.Generate(Of("alice", "The secret of Alice is kept in the blue drawer."));
  (void)harness.Generate(Of("bob", "The secret of Bob is kept in the red drawer."));
  const auto own = CacheOf(harness, {.id = 1, .isolation = KeyOf("alice")});
  ASSERT_FALSE(own.nodes.empty());
  EXPECT_EQ(own.id, 1);
  std::string text;
  for (const auto& node : own.nodes) text += node.begin + node.end;
  EXPECT_THAT(text, HasSubstr("Alice"));
  EXPECT_EQ(text.find("Bob"), std::string::npos);
  EXPECT_EQ(own.nodes[0].from, 0);
  EXPECT_GT(own.nodes[0].kv_bytes + own.nodes[0].state_bytes + own.nodes[0].window_bytes, 0);

  const auto admin = CacheOf(harness, {.isolation = KeyOf("carol"), .others = true});
  EXPECT_LT(own.bytes, admin.bytes);
  EXPECT_EQ(admin.other_keys, 2);
  ASSERT_EQ(std::ssize(admin.nodes), admin.other_nodes);
  for (const auto& node : admin.nodes) {
    EXPECT_GT(node.tree, 0);
    EXPECT_EQ(node.begin + node.end, "");
  }
}

// Numbers of nodes and bytes, and whether anything changed, would tell how much of a request of another key
// was new.
TEST(EngineInspect, ARequestOfAnotherKeyChangesNoNumber) {
  EngineHarness harness;
  (void)harness.Generate(Of("alice", "The secret of Alice is kept in the blue drawer."));
  (void)EngineOf(harness);  // a turn of the loop: what the request left is counted
  const auto before = CacheOf(harness, {.isolation = KeyOf("alice")});
  (void)harness.Generate(Of("bob", "The secret of Bob is kept in the red drawer."));
  const auto after = CacheOf(harness, {.isolation = KeyOf("alice")});
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(after.other_keys, 0);
  EXPECT_EQ(after.other_nodes, 0);
  const auto again = CacheOf(harness, {.isolation = KeyOf("alice"), .known_version = before.version});
  EXPECT_TRUE(again.unchanged);
  EXPECT_TRUE(again.nodes.empty());
  // The next node has the next number, whatever Bob's nodes have.
  const auto next = [](const auto& nodes) {
    return std::ranges::max(nodes, {}, &api::ipc::InspectedNode::id).id + 1;
  };
  const uint64_t number = next(before.nodes);
  (void)harness.Generate(Of("alice", "Quite another question of Alice."));
  (void)EngineOf(harness);
  const auto more = CacheOf(harness, {.isolation = KeyOf("alice")});
  EXPECT_GT(more.version, before.version);
  EXPECT_EQ(next(more.nodes), number + more.nodes.size() - before.nodes.size());
}

TEST(EngineInspect, AnAnswerIsBounded) {
  EngineHarness harness;
  (void)harness.Generate(Of("a", "One two three four."));
  (void)harness.Generate(Of("a", "One two three five six."));
  const auto all = CacheOf(harness, {.isolation = KeyOf("a")});
  ASSERT_GT(all.nodes.size(), 1U);
  EXPECT_EQ(all.nodes_left_out, 0);
  const auto first = CacheOf(harness, {.isolation = KeyOf("a"), .nodes_max = 1});
  ASSERT_EQ(first.nodes.size(), 1U);
  EXPECT_EQ(first.nodes_left_out, std::ssize(all.nodes) - 1);
  EXPECT_EQ(first.nodes[0].parent, 0);
  for (const auto& node : all.nodes) {
    EXPECT_LE(node.begin.size(), api::ipc::CacheInspected::kTextBytesMax);
    EXPECT_LE(node.end.size(), api::ipc::CacheInspected::kTextBytesMax);
  }
}

TEST(EngineInspect, TheVersionHoldsWhileNothingChanges) {
  EngineHarness harness;
  (void)harness.Generate(Of("a", "One two three."));
  (void)EngineOf(harness);  // a turn of the loop: what the request left is counted
  const auto first = CacheOf(harness, {.isolation = KeyOf("a")});
  EXPECT_EQ(CacheOf(harness, {.isolation = KeyOf("a")}).version, first.version);
  EXPECT_EQ(harness.engine_stats().prefix_changes.load(), first.version);
  (void)harness.Generate(Of("a", "One two four."));
  EXPECT_GT(CacheOf(harness, {.isolation = KeyOf("a")}).version, first.version);
}

TEST(EngineInspect, APromptThatLeavesTheCacheSaysWhereAndHow) {
  EngineHarness harness;
  (void)harness.Generate(Of("a", "Today is Monday. Tell me about the sea."));
  const auto outcome = harness.Generate(Of("a", "Today is Sunday. Tell me about the sea."));
  ASSERT_TRUE(outcome.ready && outcome.ready->divergence);
  const api::Divergence& divergence = *outcome.ready->divergence;
  EXPECT_GT(divergence.at, 0);
  EXPECT_THAT(divergence.shared, HasSubstr("Today is"));
  EXPECT_THAT(divergence.prompt, HasSubstr("unday. Tell me"));
  EXPECT_THAT(divergence.cached, HasSubstr("onday. Tell me"));
  EXPECT_GT(outcome.ready->restore_ns, 0);

  // The same words of another key are not known; one that knows all of its prompt leaves nothing.
  EXPECT_FALSE(harness.Generate(Of("b", "Today is Friday. Tell me about the sea.")).ready->divergence);
  EXPECT_FALSE(harness.Generate(Of("a", "Today is Sunday. Tell me about the sea.")).ready->divergence);
}

TEST(EngineInspect, ShowsWhatRunsAndWhatWaits) {
  EngineHarness harness({.limits = {.running_max = 1, .cache_bytes = kPlenty}, .model_stops = false});
  EXPECT_TRUE(EngineOf(harness).sequences.empty());
  const auto runs = harness.Submit(Of("a", "Tell me a story.", 100'000));
  harness.Post(api::ipc::Credit{runs, 1'000'000});
  harness.WaitUntil(runs, [](const Outcome& outcome) { return !outcome.deltas.empty(); });
  const auto waits = harness.Submit(Of("a", "Quite another prompt.", 1));
  auto inspected = EngineOf(harness);
  while (inspected.sequences.size() < 2) inspected = EngineOf(harness);
  EXPECT_EQ(inspected.id, 9);
  EXPECT_GT(inspected.steps, 0);
  EXPECT_GT(inspected.step_ns, 0);
  const auto& first = inspected.sequences[0];
  EXPECT_EQ(first.id, runs);
  EXPECT_GT(first.output_tokens, 0);
  EXPECT_GT(first.computed_tokens, 0);
  EXPECT_EQ(first.prefill_ns, 0);
  const auto& second = inspected.sequences[1];
  EXPECT_EQ(second.id, waits);
  EXPECT_NE(second.wait, api::ipc::WaitReason::kNone);
  EXPECT_EQ(second.computed_tokens, 0);
  harness.Post(api::ipc::Cancel{runs});
  EXPECT_TRUE(harness.Wait(waits).finished);
}

TEST(TokenText, IsWholeTokensWithinItsBound) {
  EngineHarness harness;
  const auto model = Load(kDemoModel, [](float, std::string_view) {}, {});
  ASSERT_TRUE(model);
  const auto& tokenizer = *model->tokenizer;
  const auto tokens =
      *tokenizer.Encode("The quick brown fox jumps over it.", tokenizer::SpecialTokens::kAsText);
  EXPECT_THAT(TextOf(tokenizer, tokens, Excerpt::kBegin, 1000), HasSubstr("quick brown fox"));
  const std::string begin = TextOf(tokenizer, tokens, Excerpt::kBegin, 12);
  EXPECT_LE(begin.size(), 12U);
  EXPECT_THAT(TextOf(tokenizer, tokens, Excerpt::kBegin, 1000), StartsWith(begin));
  const std::string end = TextOf(tokenizer, tokens, Excerpt::kEnd, 12);
  EXPECT_TRUE(TextOf(tokenizer, tokens, Excerpt::kEnd, 1000).ends_with(end));
  EXPECT_EQ(TextOf(tokenizer, tokens, Excerpt::kBegin, 0), "");
  EXPECT_EQ(TextOf(tokenizer, {}, Excerpt::kEnd, 12), "");
}

}  // namespace
}  // namespace quire::runner::engine
