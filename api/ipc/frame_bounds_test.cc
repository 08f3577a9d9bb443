#include "api/ipc/frame_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/ipc/message_fields.h"
#include "api/ipc/model_fields.h"
#include "api/ipc/packer.h"

namespace quire::api::ipc {
namespace {

using ::testing::HasSubstr;

FrameReader::Frame TheFrame(const std::string& bytes, Receiver receiver = Receiver::kDaemon) {
  FrameReader reader(receiver);
  reader.Append(bytes);
  auto frame = reader.Next();
  EXPECT_TRUE(frame && *frame);
  return **frame;
}

void ExpectPasses(const ToDaemon& message) {
  const std::string bytes = Encode(message);
  const auto decoded = DecodeToDaemon(TheFrame(bytes));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->index(), message.index());
  EXPECT_EQ(Encode(*decoded), bytes);
}

// A header of a type to the daemon that announces a payload of that length.
std::string HeaderOf(size_t type, size_t length) {
  std::string header = Encode(ToDaemon(Heartbeat{})).substr(0, kHeaderBytes);
  header[6] = static_cast<char>(type);
  for (size_t i = 0; i < 4; ++i) header[8 + i] = static_cast<char>(length >> (8 * i) & 0xff);
  return header;
}

TEST(FrameBounds, AFrameTooLargeForItsTypeIsRefusedByItsHeader) {
  for (uint16_t type = kFirstTypeToDaemon; BoundsOf(Receiver::kDaemon, type); ++type) {
    const size_t bytes_max = BoundsOf(Receiver::kDaemon, type)->bytes;
    EXPECT_LE(bytes_max, size_t{64} << 20) << type;
    FrameReader fits(Receiver::kDaemon);
    fits.Append(HeaderOf(type, bytes_max));
    EXPECT_TRUE(fits.Next()) << type;
    FrameReader too_large(Receiver::kDaemon);
    too_large.Append(HeaderOf(type, bytes_max + 1));
    EXPECT_FALSE(too_large.Next()) << type;
    FrameReader wrong_way(Receiver::kRunner);
    wrong_way.Append(HeaderOf(type, 1));
    EXPECT_FALSE(wrong_way.Next()) << type;
  }
}

TEST(FrameBounds, TheLargestMessagesOfARunnerSurvive) {
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  CacheInspected cache{.id = ~uint64_t{0}, .version = ~uint64_t{0}};
  const std::string text(CacheInspected::kTextBytesMax, 'x');
  cache.nodes.assign(kInspectedNodesMax,
                     {~uint64_t{0}, ~uint64_t{0}, kMax, kLarge, kLarge, kLarge, kLarge, kLarge, kLarge, true,
                      true, kMax, kMax, ~uint64_t{0}, kLarge, kLarge, text, text});
  ExpectPasses(ToDaemon(cache));
  EngineInspected engine{.id = ~uint64_t{0}};
  engine.sequences.assign(kInspectedSequencesMax, {RequestId{~uint64_t{0}}, WaitReason::kReader, true, kMax,
                                                   kMax, kMax, kLarge, kLarge});
  ExpectPasses(ToDaemon(engine));
  Inspected inspected{};
  inspected.model_info_json = std::string(size_t{60} << 20, 'x');
  ExpectPasses(ToDaemon(inspected));
  Finished finished;
  finished.context.assign(8'000'000, kMax);
  ExpectPasses(ToDaemon(RequestEvent{RequestId{1}, finished}));
  TextDelta delta;
  delta.logprobs.assign(1024, {{std::string(100, '\xFF'), kMax, -1.5F}, {}});
  ExpectPasses(ToDaemon(RequestEvent{RequestId{1}, delta}));
  delta.logprobs.assign(4, {{"a", 1, -1.5F}, std::vector<TokenCandidate>(20, {"b", 2, -2.5F})});
  ExpectPasses(ToDaemon(RequestEvent{RequestId{1}, delta}));
  delta.logprobs.assign(8,
                        {{"a", 1, -1.5F}, std::vector<TokenCandidate>(kTopCandidatesMax, {"b", 2, -2.5F})});
  ExpectPasses(ToDaemon(RequestEvent{RequestId{1}, delta}));
  delta.logprobs.resize(1);
  delta.logprobs[0].top.resize(20);
  delta.tool_calls.assign(700, {"call_0123456789", "f", "{}"});
  ExpectPasses(ToDaemon(RequestEvent{RequestId{1}, delta}));
}

// The daemon would take the runner for a liar, and replace it for all.
TEST(FrameBounds, AnEventThatWouldBeRefusedFailsItsRequestAlone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto failure = [](Event event) {
    const auto sent =
        *DecodeToDaemon(TheFrame(Encode(ToDaemon(RequestEvent{RequestId{7}, std::move(event)}))));
    EXPECT_EQ(std::get<RequestEvent>(sent).id, RequestId{7});
    const auto* failed = std::get_if<Failed>(&std::get<RequestEvent>(sent).event);
    return failed == nullptr ? "" : failed->error.message;
  };
  EXPECT_EQ(failure(TextDelta{.text = "a", .tokens = 1, .state = ResumeState{.sampler = 1e30F}}), "");
  EXPECT_THAT(failure(TextDelta{.text = "a", .tokens = 1, .state = ResumeState{.sampler = kInfinity}}),
              HasSubstr("\"sampler\""));
  EXPECT_THAT(failure(TextDelta{.text = "a", .tokens = -1}), HasSubstr("\"tokens\""));
  TextDelta delta;
  delta.logprobs.assign(1, {{"a", 1, -kInfinity}, {}});
  EXPECT_EQ(failure(delta), "") << "a token of zero probability";
  delta.logprobs.assign(1, {{"a", 1, std::nanf("")}, {}});
  EXPECT_THAT(failure(delta), HasSubstr("\"logprob\""));
  delta.logprobs.assign(500, {{"a", 1, -1}, std::vector<TokenCandidate>(20, {"b", 2, -2})});
  EXPECT_THAT(failure(delta), HasSubstr("more than 65536 values"));
  Finished finished;
  finished.embedding = {0, std::nanf("")};
  EXPECT_THAT(failure(finished), HasSubstr("\"embedding\""));
  finished.embedding = {0, 1};
  EXPECT_EQ(failure(finished), "");
  finished.usage.output_tokens = 1 << 24;
  EXPECT_THAT(failure(finished), HasSubstr("\"output_tokens\""));
}

// The runner would take the daemon for a broken one, and end.
TEST(FrameBounds, ARequestThatARunnerWouldRefuseIsNotSent) {
  Submit submit{RequestId{7}, {}};
  const auto check = [&submit] { return Check(SubmitView{submit.id, submit.request, submit.resume}); };
  EXPECT_TRUE(check());
  submit.request.predict_ms_max = -1;
  const auto negative = check();
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(negative.error().message, HasSubstr("\"predict_ms_max\""));
  EXPECT_FALSE(DecodeToRunner(TheFrame(Encode(ToRunner(submit)), Receiver::kRunner)));
  submit.request.predict_ms_max = 0;
  submit.request.params.temperature = std::nanf("");
  EXPECT_FALSE(check());
  submit.request.params.temperature = 1;
  ChatPrompt prompt;
  prompt.messages.assign(2'000'000, {"user", ""});
  submit.request.prompt = std::move(prompt);
  const auto many = check();
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, ErrorCode::kTooLarge);
  std::get<ChatPrompt>(submit.request.prompt).messages.resize(100);
  EXPECT_TRUE(check());
  EXPECT_TRUE(DecodeToRunner(TheFrame(Encode(ToRunner(submit)), Receiver::kRunner)));
}

// As the receiver counts them.
TEST(FrameBounds, ValuesAreCountedAlike) {
  const size_t most = BoundsOf(Receiver::kDaemon,
                               static_cast<uint16_t>(kFirstTypeToDaemon + ToDaemon(RequestEvent{}).index()))
                          ->values;
  size_t passed = 0;
  constexpr size_t kValuesOfCall = 7;
  for (size_t calls = most / kValuesOfCall - 40; calls < most / kValuesOfCall + 40; ++calls) {
    TextDelta delta;
    delta.tool_calls.assign(calls, {"1", "f", "{}"});
    const auto sent = DecodeToDaemon(TheFrame(Encode(ToDaemon(RequestEvent{RequestId{1}, delta}))));
    ASSERT_TRUE(sent) << sent.error().message;
    passed += std::holds_alternative<TextDelta>(std::get<RequestEvent>(*sent).event) ? 1 : 0;
  }
  EXPECT_GT(passed, 30U) << "what is not too much is sent";
  EXPECT_LT(passed, 50U);
}

// The daemon waits for an answer.
TEST(FrameBounds, AMessageBeyondItsBoundsGivesWayToAnError) {
  const std::string large(size_t{70} << 20, 'x');
  const auto sent = [](const ToDaemon& message) { return *DecodeToDaemon(TheFrame(Encode(message))); };
  const auto event = std::get<RequestEvent>(sent(RequestEvent{RequestId{7}, TextDelta{.text = large}}));
  EXPECT_EQ(event.id, RequestId{7});
  EXPECT_EQ(std::get<Failed>(event.event).error.code, ErrorCode::kTooLarge);
  const Error error{ErrorCode::kBadModel, large, "f"};
  const auto failed = std::get<RequestEvent>(sent(RequestEvent{RequestId{7}, Failed{error}}));
  EXPECT_EQ(std::get<Failed>(failed.event).error.code, ErrorCode::kBadModel);
  Inspected inspected{};
  inspected.tensors_json = large;
  EXPECT_EQ(std::get<Inspected>(sent(inspected)).error.value().code, ErrorCode::kTooLarge);
  for (const Error& shortened : {std::get<LoadFailed>(sent(LoadFailed{error})).error,
                                 std::get<Converted>(sent(Converted{error})).error.value()}) {
    EXPECT_EQ(shortened.code, ErrorCode::kBadModel);
    EXPECT_THAT(shortened.message, ::testing::EndsWith("xx..."));
    EXPECT_EQ(shortened.field, "f");
  }
}

// The daemon sums what a runner says, and repeats lists in replies.
// As a runner that checks nothing would send it.
std::string EncodeUnchecked(const ToDaemon& message) {
  std::string payload;
  std::visit([&payload](const auto& alternative) { Packer(payload).Put(alternative); }, message);
  return HeaderOf(kFirstTypeToDaemon + message.index(), payload.size()) + payload;
}

TEST(FrameBounds, NumbersAndTextsBeyondTheirBoundsAreRefused) {
  const auto is_taken = [](const ToDaemon& message) {
    return DecodeToDaemon(TheFrame(EncodeUnchecked(message))).has_value();
  };
  const auto finishes = [&is_taken](const auto& change) {
    Finished finished;
    change(finished);
    return is_taken(RequestEvent{RequestId{1}, finished});
  };
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(finishes([](Finished& f) { f.usage.prompt_ns = int64_t{1} << 54; }));
  EXPECT_FALSE(finishes([](Finished& f) { f.usage.prompt_ns = kLarge; }));
  EXPECT_FALSE(finishes([](Finished& f) { f.usage.output_ns = kLarge; }));
  EXPECT_TRUE(finishes([](Finished& f) { f.usage.output_tokens = kAnswerTokensMax; }));
  EXPECT_FALSE(finishes([](Finished& f) { f.usage.output_tokens = 1 << 24; }));
  EXPECT_FALSE(finishes([](Finished& f) { f.usage.prompt_tokens = 1 << 24; }));
  EXPECT_FALSE(finishes([](Finished& f) { f.usage.draft.drafted = 1 << 24; }));
  EXPECT_FALSE(finishes([](Finished& f) { f.usage.draft.accepted_by_position.resize(1'000'000); }));
  EXPECT_FALSE(finishes([](Finished& f) { f.stop_string.resize(1'000'000); }));
  EXPECT_TRUE(finishes([](Finished& f) { f.embedding = {1, -2}; }));
  for (const float number :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_FALSE(finishes([&](Finished& f) { f.embedding = {1, number}; })) << "ranking sorts them";
  }
  EXPECT_FALSE(
      is_taken(RequestEvent{RequestId{1}, PromptReady{.prompt_tokens = 1, .miss = std::string(100, 'x')}}));
  EXPECT_FALSE(is_taken(RequestEvent{RequestId{1}, PromptReady{.prompt_tokens = 1, .restore_ns = kLarge}}));
  EXPECT_TRUE(is_taken(MemoryEstimate{1, 2, 3, int64_t{1} << 50, 4}));
  EXPECT_FALSE(is_taken(MemoryEstimate{kLarge, 2, 3, 4, 5}));
  EXPECT_FALSE(is_taken(MemoryEstimate{1, 2, 3, 4, kLarge}));
  Inspected inspected{};
  inspected.memory = MemoryEstimate{1, kLarge, 3, 4, 5};
  EXPECT_FALSE(is_taken(inspected));
  EXPECT_FALSE(is_taken(Loaded{{"a", 1, 1, 1, kLarge, 1, true}, 1}));
  EXPECT_FALSE(is_taken(Heartbeat{1, 1, 1, 1, 1, 1, kLarge, 1}));
}

TEST(FrameBounds, AFrameOfTooManyValuesIsRefused) {
  TextDelta delta;
  delta.tool_calls.assign(10'000, {"", "", ""});
  const auto decoded = DecodeToDaemon(TheFrame(EncodeUnchecked(ToDaemon(RequestEvent{RequestId{1}, delta}))));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace quire::api::ipc
