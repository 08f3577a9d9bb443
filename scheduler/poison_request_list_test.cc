#include "scheduler/poison_request_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <functional>
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

// Every HTTP exchange has an id of its own.
TEST(PoisonRequestList, TheSameRequestOfAnotherExchangeIsRejected) {
  PoisonRequestList list;
  api::Request request = ChatOf("kill");
  list.Remember("model", request, kNow);
  request.client.exchange = "2";
  const auto checked = list.Check("model", request, kNow + seconds(10));
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, api::ErrorCode::kRunnerDied);
  EXPECT_EQ(checked.error().message,
            "this request killed the model runner more than once; it is rejected for another 290 s");
  EXPECT_TRUE(list.Check("model", request, kNow + PoisonRequestList::kRetention));
}

TEST(PoisonRequestList, ARequestThatDiffersInAnythingIsNot) {
  PoisonRequestList list;
  const api::Request poison = ChatOf("kill");
  list.Remember("model", poison, kNow);
  EXPECT_TRUE(list.Check("other", poison, kNow));
  using Change = std::function<void(api::Request&)>;
  const auto messages = [](api::Request& of) -> std::vector<api::Message>& {
    return std::get<api::ChatPrompt>(of.prompt).messages;
  };
  const std::vector<Change> changes = {
      [&](api::Request& of) { messages(of)[1].content = "kilo"; },
      [&](api::Request& of) { messages(of)[1].content = "kill "; },
      [&](api::Request& of) { messages(of).pop_back(); },
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
    EXPECT_TRUE(list.Check("model", request, kNow)) << "change " << i;
  }
  EXPECT_FALSE(list.Check("model", poison, kNow));
}

TEST(PoisonRequestList, TheOldestIsDroppedFirst) {
  PoisonRequestList list;
  const auto request = [](size_t i) { return ChatOf(fmt::format("kill {}", i)); };
  for (size_t i = 0; i <= PoisonRequestList::kEntriesMax; ++i)
    list.Remember("model", request(i), kNow + seconds(i / 100));
  list.Remember("model", request(1), kNow + seconds(10));
  EXPECT_TRUE(list.Check("model", request(0), kNow));
  for (size_t i = 1; i <= PoisonRequestList::kEntriesMax; ++i)
    EXPECT_FALSE(list.Check("model", request(i), kNow)) << i;
}

TEST(PoisonRequestList, ItKeepsNoTextOfARequest) {
  PoisonRequestList list;
  api::Request request = ChatOf(std::string(size_t{4} << 20, 'x'));
  const size_t before = HeapBytes();
  for (int i = 0; i < 32; ++i) {
    request.params.seed = i;
    list.Remember("model", request, kNow);
  }
  EXPECT_LT(HeapBytes(), before + (size_t{1} << 20));
  EXPECT_FALSE(list.Check("model", request, kNow));
}

}  // namespace
}  // namespace quire::scheduler
