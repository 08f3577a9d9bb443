#include "scheduler/poison_request_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace quire::scheduler {
namespace {

using std::chrono::seconds;

const PoisonRequestList::Time kNow{std::chrono::hours(1)};

api::Request ChatOf(std::string text) {
  api::Request request;
  request.prompt = api::ChatPrompt{
      {{.role = "system", .content = "be brief"}, {.role = "user", .content = std::move(text)}}};
  request.client = {.tenant = "someone", .cache_salt = "salt", .exchange = "1"};
  return request;
}

size_t HeapBytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Every HTTP exchange has an id and a time of its own.
TEST(PoisonRequestList, TheSameRequestOfAnotherExchangeIsRejected) {
  PoisonRequestList list;
  api::Request request = ChatOf("kill");
  list.Remember("model", FingerprintOf(request), kNow);
  request.client.exchange = "2";
  request.now_s = 12345;
  const auto checked = list.Check("model", FingerprintOf(request), kNow + seconds(10));
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, api::ErrorCode::kRunnerDied);
  EXPECT_EQ(checked.error().message,
            "this request killed the model runner more than once; it is rejected for another 290 s");
  EXPECT_TRUE(list.Check("model", FingerprintOf(request), kNow + PoisonRequestList::kRetention));
}

TEST(PoisonRequestList, ARequestThatDiffersInAnythingIsNot) {
  PoisonRequestList list;
  const api::Request poison = ChatOf("kill");
  list.Remember("model", FingerprintOf(poison), kNow);
  EXPECT_TRUE(list.Check("other", FingerprintOf(poison), kNow));
  using Change = std::function<void(api::Request&)>;
  const auto messages = [](api::Request& of) -> std::vector<api::Message>& {
    return std::get<api::ChatPrompt>(of.prompt).messages;
  };
  const std::vector<Change> changes = {
      [&](api::Request& of) { messages(of)[1].content = "kilo"; },
      [&](api::Request& of) { messages(of)[1].content = "kill "; },
      [&](api::Request& of) { messages(of).pop_back(); },
      [&](api::Request& of) {
        messages(of)[1].images = {{0, std::make_shared<const std::string>("i")}};
      },
      [&](api::Request& of) {
        messages(of)[1].images = {{1, std::make_shared<const std::string>("i")}};
      },
      [&](api::Request& of) {
        messages(of)[1].images = {{0, std::make_shared<const std::string>("j")}};
      },
      [&](api::Request& of) {  // the same bytes, cut elsewhere
        messages(of)[1].role = "userk";
        messages(of)[1].content = "ill";
      },
      [&](api::Request& of) {
        messages(of)[1].thinking = "kill";
        messages(of)[1].content = "";
      },
      [](api::Request& of) { of.prompt = api::RawPrompt{"kill"}; },
      [](api::Request& of) { of.client.tenant = "another"; },
      [](api::Request& of) { of.client.cache_salt = "tlas"; },
      [](api::Request& of) { of.params.seed = 5; },
      [](api::Request& of) { of.params.temperature = 0.25F; },
      [](api::Request& of) { of.format = api::OutputFormat{}; },
      [](api::Request& of) { of.logprobs = true; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    api::Request request = poison;
    changes[i](request);
    EXPECT_TRUE(list.Check("model", FingerprintOf(request), kNow)) << "change " << i;
  }
  EXPECT_FALSE(list.Check("model", FingerprintOf(poison), kNow));
}

// Requests like one of the list are not read, but for one that may be the same: each was hashed, in 40 to 150
// ms of 64 MiB.
TEST(PoisonRequestList, TheOutlineTellsMostRequestsApart) {
  PoisonRequestList list;
  const api::Request poison = ChatOf("kill");
  EXPECT_FALSE(list.MayHave("model", poison));
  list.Remember("model", FingerprintOf(poison), kNow);
  EXPECT_TRUE(list.MayHave("model", poison));
  EXPECT_FALSE(list.MayHave("other", poison));
  EXPECT_TRUE(list.MayHave("model", ChatOf("kilo"))) << "the same size";
  EXPECT_TRUE(list.Check("model", FingerprintOf(ChatOf("kilo")), kNow));
  EXPECT_FALSE(list.MayHave("model", ChatOf("kills")));
  api::Request longer = poison;
  auto& messages = std::get<api::ChatPrompt>(longer.prompt).messages;
  messages.insert(messages.begin() + 1, messages[1]);
  EXPECT_FALSE(list.MayHave("model", longer));
  longer = poison;
  longer.params.seed = 5;
  EXPECT_FALSE(list.MayHave("model", longer));
}

TEST(PoisonRequestList, RequestsLikeOneThatIsBeingHashedAreCheckedBehindIt) {
  PoisonRequestList list;
  const api::Request poison = ChatOf("kill");
  list.Announce("model", poison, kNow);
  EXPECT_TRUE(list.MayHave("model", poison));
  EXPECT_TRUE(list.Check("model", FingerprintOf(poison), kNow)) << "not yet";
  list.Remember("model", FingerprintOf(poison), kNow);
  EXPECT_FALSE(list.Check("model", FingerprintOf(poison), kNow));
  EXPECT_TRUE(list.Check("model", FingerprintOf(poison), kNow + PoisonRequestList::kRetention));
  EXPECT_FALSE(list.MayHave("model", poison));
}

TEST(PoisonRequestList, LargeRequestsAreLongToRead) {
  EXPECT_FALSE(IsSlowToHash(ChatOf(std::string(60 << 10, 'x'))));
  EXPECT_TRUE(IsSlowToHash(ChatOf(std::string(70 << 10, 'x'))));
  api::Request many;
  many.prompt = api::ChatPrompt{std::vector<api::Message>(5000)};
  EXPECT_TRUE(IsSlowToHash(many)) << "250,000 of them are as much work as 64 MiB";
}

TEST(PoisonRequestList, TheOldestIsDroppedFirst) {
  PoisonRequestList list;
  const auto request = [](size_t i) { return ChatOf(fmt::format("kill {}", i)); };
  for (size_t i = 0; i <= PoisonRequestList::kEntriesMax; ++i)
    list.Remember("model", FingerprintOf(request(i)), kNow + seconds(i / 100));
  list.Remember("model", FingerprintOf(request(1)), kNow + seconds(10));
  EXPECT_TRUE(list.Check("model", FingerprintOf(request(0)), kNow));
  for (size_t i = 1; i <= PoisonRequestList::kEntriesMax; ++i)
    EXPECT_FALSE(list.Check("model", FingerprintOf(request(i)), kNow)) << i;
}

TEST(PoisonRequestList, ItKeepsNoTextOfARequest) {
  PoisonRequestList list;
  api::Request request = ChatOf(std::string(size_t{4} << 20, 'x'));
  const size_t before = HeapBytes();
  for (int i = 0; i < 32; ++i) {
    request.params.seed = i;
    list.Remember("model", FingerprintOf(request), kNow);
  }
  EXPECT_LT(HeapBytes(), before + (size_t{1} << 20));
  EXPECT_FALSE(list.Check("model", FingerprintOf(request), kNow));
}

}  // namespace
}  // namespace quire::scheduler
