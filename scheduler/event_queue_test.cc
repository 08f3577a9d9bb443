#include "scheduler/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace quire::scheduler {
namespace {

api::Event Delta(std::string text = "x") { return api::TextDelta{.text = std::move(text), .tokens = 1}; }

EventQueue Ready() {
  EventQueue queue;
  EXPECT_TRUE(queue.Push(api::PromptReady{}));
  EXPECT_TRUE(queue.Pop());
  return queue;
}

TEST(EventQueue, KeepsOrder) {
  EventQueue queue;
  ASSERT_TRUE(queue.Push(api::PromptReady{7, 3}));
  ASSERT_TRUE(queue.Push(Delta("a")));
  ASSERT_TRUE(queue.Push(Delta("b")));
  ASSERT_TRUE(queue.Push(api::Finished{}));
  EXPECT_TRUE(queue.ended());
  EXPECT_EQ(std::get<api::PromptReady>(*queue.Pop()).prompt_tokens, 7);
  EXPECT_EQ(std::get<api::TextDelta>(*queue.Pop()).text, "a");
  EXPECT_EQ(std::get<api::TextDelta>(*queue.Pop()).text, "b");
  EXPECT_TRUE(std::holds_alternative<api::Finished>(*queue.Pop()));
  EXPECT_FALSE(queue.Pop());
}

TEST(EventQueue, HoldsNoMoreDeltasThanCredit) {
  EventQueue queue = Ready();
  for (int i = 0; i < api::ipc::kInitialCredit; ++i) ASSERT_TRUE(queue.Push(Delta()));
  EXPECT_FALSE(queue.Push(Delta()));
  EXPECT_TRUE(queue.Push(api::Finished{})) << "the end needs no credit";
}

api::Event Ids(int32_t tokens, size_t ids) {
  api::TextDelta delta{.text = "", .tokens = tokens};
  delta.token_ids.assign(ids, 7);
  return delta;
}

TEST(EventQueue, HoldsNoMoreIdsThanTokens) {
  EventQueue queue = Ready();
  EXPECT_TRUE(queue.Push(Ids(2, 2)));
  EXPECT_TRUE(queue.Push(Ids(2, 0)));
  EXPECT_FALSE(queue.Push(Ids(1, 2)));
  EXPECT_FALSE(queue.Push(Ids(-1, 0)));
  EXPECT_EQ(queue.tokens_held(), 2U);
}

// Deltas without text make no output, and their credit returns at once.
TEST(EventQueue, HoldsNoMoreTokensThanTheRequestAskedFor) {
  EventQueue queue = Ready();
  queue.set_tokens_max(1000);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(queue.Push(Ids(100, 100)));
    ASSERT_TRUE(queue.Pop());
  }
  EXPECT_FALSE(queue.Push(Ids(1, 1)));
  EXPECT_FALSE(queue.Push(Ids(1, 0)));
  EXPECT_FALSE(queue.Push(Ids(INT32_MAX, 0)));
  EXPECT_TRUE(queue.Push(Ids(0, 0))) << "text behind the last token";
  EXPECT_EQ(queue.tokens_held(), 1000U);
  EXPECT_EQ(queue.ResumePoint().tokens.size(), 999U);
  ASSERT_TRUE(queue.Push(api::PromptReady{}));
  EXPECT_FALSE(queue.Push(Ids(1, 1))) << "the next runner has no tokens of its own";
  EXPECT_TRUE(queue.Push(api::Finished{}));
  EXPECT_EQ(queue.tokens_held(), 0U) << "nothing is resumed any more";
}

TEST(EventQueue, NoAnswerHasMoreTokensThanThereIsRoomFor) {
  EventQueue queue = Ready();
  EXPECT_TRUE(queue.Push(Ids(api::ipc::kAnswerTokensMax, 0)));
  EXPECT_FALSE(queue.Push(Ids(1, 0)));
}

TEST(EventQueue, RefusesMoreAcceptedDraftTokensThanProposed) {
  const auto finished = [](std::vector<int32_t> accepted) {
    api::Finished event;
    event.usage.draft = {.rounds = 2, .drafted = 4, .accepted_by_position = std::move(accepted)};
    return api::Event(event);
  };
  EXPECT_FALSE(Ready().Push(finished({3, 2})));
  EXPECT_FALSE(Ready().Push(finished({-1})));
  EXPECT_FALSE(Ready().Push(finished({INT32_MAX, INT32_MAX, 2})));
  EXPECT_TRUE(Ready().Push(finished({2, 2})));
}

TEST(EventQueue, AnErrorThatQuotesALotIsCut) {
  EventQueue queue = Ready();
  ASSERT_TRUE(queue.Push(api::Failed{{api::ErrorCode::kInternal, std::string(1'000'000, 'x'), "f"}}));
  const std::string message = std::get<api::Failed>(*queue.Pop()).error.message;
  EXPECT_LT(message.size(), 20'000U);
  EXPECT_TRUE(message.ends_with("x..."));
}

TEST(EventQueue, TakingDeltasGivesCreditInBatches) {
  EventQueue queue = Ready();
  for (int i = 0; i < api::ipc::kInitialCredit; ++i) ASSERT_TRUE(queue.Push(Delta()));
  for (int i = 0; i < EventQueue::kCreditBatch - 1; ++i) {
    ASSERT_TRUE(queue.Pop());
    ASSERT_EQ(queue.PopCredit(), 0);
  }
  ASSERT_TRUE(queue.Pop());
  EXPECT_EQ(queue.PopCredit(), EventQueue::kCreditBatch);
  EXPECT_EQ(queue.PopCredit(), 0);
  for (int i = 0; i < EventQueue::kCreditBatch; ++i) ASSERT_TRUE(queue.Push(Delta()));
  EXPECT_FALSE(queue.Push(Delta()));
}

// What a client asks for beside the text is in front of everybody's events on the runner's link.
TEST(EventQueue, CandidatesCountAsDeltas) {
  api::TextDelta large{.text = "a", .logprobs = {api::TokenLogprob{}}, .tokens = 1};
  large.logprobs[0].top.resize(600);
  large.prompt.resize(5);  // candidates of the prompt count, too
  for (api::TokenLogprob& token : large.prompt) token.top.resize(100);
  constexpr int32_t kCredit = 35;
  ASSERT_EQ(api::ipc::CreditOf(large), kCredit);
  EventQueue queue = Ready();
  int pushed = 0;
  while (queue.Push(large)) ++pushed;
  EXPECT_EQ(pushed, 8) << "the last one takes more than there is";
  EXPECT_EQ(queue.ResumePoint().credit, 0);
  ASSERT_TRUE(queue.Push(api::PromptReady{}));
  EXPECT_FALSE(queue.Push(Delta()));
  int32_t given = 0;
  for (int i = 0; i < pushed; ++i) {
    ASSERT_TRUE(queue.Pop());
    given += queue.PopCredit();
  }
  EXPECT_EQ(given, api::ipc::kInitialCredit - kCredit) << "less what makes no batch yet";
}

TEST(EventQueue, GivesNoCreditAfterTheEnd) {
  EventQueue queue = Ready();
  for (int i = 0; i < EventQueue::kCreditBatch; ++i) ASSERT_TRUE(queue.Push(Delta()));
  ASSERT_TRUE(queue.Push(api::Finished{}));
  while (queue.Pop()) EXPECT_EQ(queue.PopCredit(), 0);
}

TEST(EventQueue, RefusesEventsOutOfOrder) {
  EventQueue fresh;
  EXPECT_FALSE(fresh.Push(Delta()));
  EXPECT_FALSE(fresh.Push(api::Finished{}));
  EXPECT_FALSE(fresh.Pop());
  EXPECT_TRUE(fresh.Push(api::Failed{})) << "a prompt may be refused before it is ready";

  EventQueue twice = Ready();
  EXPECT_FALSE(twice.Push(api::PromptReady{}));
  ASSERT_TRUE(twice.Push(api::Finished{}));
  EXPECT_FALSE(twice.Push(Delta()));
  EXPECT_FALSE(twice.Push(api::Finished{}));
}

TEST(EventQueue, HoldsOnlyTheLastProgressAndNoneBehindText) {
  EventQueue early;
  EXPECT_FALSE(early.Push(api::PrefillProgress{1}));
  EventQueue queue = Ready();
  for (int32_t i = 1; i <= 100'000; ++i) ASSERT_TRUE(queue.Push(api::PrefillProgress{i}));
  EXPECT_FALSE(queue.progressed());
  EXPECT_EQ(std::get<api::PrefillProgress>(*queue.Pop()).computed_tokens, 100'000);
  EXPECT_FALSE(queue.Pop());
  ASSERT_TRUE(queue.Push(Delta("a")));
  ASSERT_TRUE(queue.Push(api::PrefillProgress{3}));
  EXPECT_TRUE(std::holds_alternative<api::TextDelta>(*queue.Pop()));
  EXPECT_FALSE(queue.Pop());
  EXPECT_EQ(queue.ResumePoint().deltas, 1);
  ASSERT_TRUE(queue.Push(api::PromptReady{}));
  EXPECT_TRUE(queue.Push(api::PrefillProgress{1})) << "the next runner computes the prompt again";
  EXPECT_FALSE(queue.Pop());
}

TEST(EventQueue, ResumesWithTheStateBeforeTheLastToken) {
  EventQueue queue = Ready();
  const auto push = [&queue](api::TokenId token, uint64_t steps, bool shift) {
    api::TextDelta delta{.text = "x", .tokens = 1};
    delta.token_ids = {token};
    delta.state = api::ResumeState{.mask_steps = steps};
    if (shift) delta.state_at_shift = api::ResumeState{.sampler = 0.5F, .mask_steps = steps};
    return queue.Push(delta);
  };
  ASSERT_TRUE(push(1, 10, false));
  ASSERT_TRUE(push(2, 20, true));
  ASSERT_TRUE(push(3, 30, false));
  ASSERT_TRUE(queue.Push(Delta("text without a token")));
  const api::ipc::Resume resume = queue.ResumePoint();
  EXPECT_EQ(resume.tokens, (std::vector<api::TokenId>{1, 2}));
  EXPECT_EQ(resume.deltas, 4);
  ASSERT_TRUE(resume.state && resume.state_at_shift);
  EXPECT_EQ(resume.state->mask_steps, 30U);
  EXPECT_EQ(resume.state_at_shift->mask_steps, 20U);
  EXPECT_EQ(resume.state_at_shift->sampler, 0.5F);
}

// The client is behind, or the answer has one event too large: the runner has done nothing wrong.
TEST(EventQueue, MoreBytesThanItHoldsEndTheRequestAndNotTheRunner) {
  const std::string large(EventQueue::kQueuedBytesMax / 4, 'x');
  api::TextDelta thinking;
  thinking.thinking = large;
  api::TextDelta calls;
  calls.tool_calls.push_back({"id", "f", large});
  for (const api::Event& event : {Delta(large), api::Event(thinking), api::Event(calls)}) {
    EventQueue queue = Ready();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.Push(event));
    ASSERT_TRUE(queue.Pop());
    ASSERT_TRUE(queue.Push(event));
    ASSERT_FALSE(queue.ended());
    ASSERT_TRUE(queue.Push(event));
    EXPECT_TRUE(queue.ended());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::holds_alternative<api::TextDelta>(*queue.Pop()));
    const auto failed = queue.Pop();
    ASSERT_TRUE(failed && std::holds_alternative<api::Failed>(*failed));
    EXPECT_EQ(std::get<api::Failed>(*failed).error.code, api::ErrorCode::kTooLarge);
    EXPECT_FALSE(queue.Pop());
  }
}

// A client that has taken everything is not blamed.
TEST(EventQueue, ACallThatIsTooLargeIsNamed) {
  api::TextDelta calls;
  calls.tool_calls.push_back({"id", "f", std::string(EventQueue::kQueuedBytesMax, 'x')});
  EventQueue queue = Ready();
  ASSERT_TRUE(queue.Push(api::Event(calls)));
  const auto failed = queue.Pop();
  ASSERT_TRUE(failed && std::holds_alternative<api::Failed>(*failed));
  EXPECT_THAT(std::get<api::Failed>(*failed).error.message, testing::HasSubstr("one tool call"));
}

TEST(EventQueue, FailComesAfterWhatIsQueuedAndOnlyOnce) {
  EventQueue queue = Ready();
  ASSERT_TRUE(queue.Push(Delta("kept")));
  queue.Fail({api::ErrorCode::kRunnerDied, "died"});
  queue.Fail({api::ErrorCode::kInternal, "again"});
  EXPECT_EQ(std::get<api::TextDelta>(*queue.Pop()).text, "kept");
  EXPECT_EQ(std::get<api::Failed>(*queue.Pop()).error.message, "died");
  EXPECT_FALSE(queue.Pop());
  EXPECT_TRUE(queue.ended());
}

}  // namespace
}  // namespace quire::scheduler
