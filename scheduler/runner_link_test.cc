#include "scheduler/runner_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/testing/io_loop.h"

namespace quire::scheduler {
namespace {

using Socket = boost::asio::local::stream_protocol::socket;

struct Recorder : RunnerLink::Listener {
  api::Result<void> OnMessage(api::ipc::ToDaemon message) override {
    messages.push_back(std::move(message));
    if (messages.size() == refuse_at) return api::Fail(api::ErrorCode::kRunnerDied, "not wanted");
    return {};
  }
  void OnLinkEnd(const LinkEnd& link_end) override {
    EXPECT_FALSE(end) << "told twice";
    end = link_end;
  }
  std::vector<api::ipc::ToDaemon> messages;
  std::optional<LinkEnd> end;
  size_t refuse_at = 0;
};

class RunnerLinkTest : public testing::Test {
 protected:
  static constexpr size_t kBytesMax = size_t{64} << 20;

  RunnerLinkTest()
      : gate_(loop_.executor()), peer_(loop_.executor()), recorder_(std::make_shared<Recorder>()) {
    Socket ours(loop_.executor());
    boost::asio::local::connect_pair(ours, peer_);
    link_ = std::make_shared<RunnerLink>(std::move(ours), recorder_, kBytesMax);
    link_->Start(gate_);
  }
  void TearDown() override {
    link_->Close();
    loop_.Run(gate_.Empty());
    EXPECT_TRUE(recorder_->end);
  }

  void FromPeer(const std::string& bytes) { boost::asio::write(peer_, boost::asio::buffer(bytes)); }
  const LinkEnd& End() {
    loop_.RunUntil([this] { return recorder_->end.has_value(); });
    return *recorder_->end;
  }
  // A request of about `bytes`.
  bool Submit(uint64_t id, size_t bytes, const std::string& party = {}) {
    api::ipc::Submit message{api::RequestId{id}, {}};
    message.request.prompt = api::RawPrompt{std::string(bytes, 'x')};
    message.request.client.party = fair::PartyNamed(party);
    return link().TrySend({message.id, message.request, message.resume}).has_value();
  }
  // The next `count` frames, as their kinds and ids.
  std::vector<std::string> ReadFrames(size_t count) {
    api::ipc::FrameReader frames(api::ipc::Receiver::kRunner);
    std::vector<std::string> order;
    std::vector<char> buffer(size_t{1} << 20);
    peer().non_blocking(true);
    loop().RunUntil([&] {
      boost::system::error_code error;
      const size_t bytes = peer().read_some(boost::asio::buffer(buffer), error);
      frames.Append({buffer.data(), bytes});
      while (const auto frame = frames.Next().value()) {
        order.push_back(Describe(api::ipc::DecodeToRunner(*frame).value()));
      }
      return order.size() >= count || (error && error != boost::asio::error::would_block);
    });
    return order;
  }
  static std::string Describe(const api::ipc::ToRunner& message) {
    if (const auto* submit = std::get_if<api::ipc::Submit>(&message)) return IdText(submit->id);
    if (const auto* cancel = std::get_if<api::ipc::Cancel>(&message)) return "cancel " + IdText(cancel->id);
    if (const auto* credit = std::get_if<api::ipc::Credit>(&message)) return "credit " + IdText(credit->id);
    return "other";
  }
  static std::string IdText(api::RequestId id) { return std::to_string(static_cast<uint64_t>(id)); }
  IoLoop& loop() { return loop_; }
  Socket& peer() { return peer_; }
  Recorder& recorder() { return *recorder_; }
  RunnerLink& link() { return *link_; }

 private:
  IoLoop loop_;
  Gate gate_;
  Socket peer_;
  std::shared_ptr<Recorder> recorder_;
  std::shared_ptr<RunnerLink> link_;
};

std::string Heartbeat(uint64_t steps) {
  return api::ipc::Encode(api::ipc::ToDaemon(api::ipc::Heartbeat{.steps = steps}));
}

TEST_F(RunnerLinkTest, DeliversFramesHoweverTheyAreCut) {
  const std::string bytes = Heartbeat(1) + Heartbeat(2) + Heartbeat(3);
  for (const char byte : bytes) {
    FromPeer(std::string(1, byte));
    loop().Poll();
  }
  loop().RunUntil([this] { return recorder().messages.size() == 3; });
  EXPECT_EQ(std::get<api::ipc::Heartbeat>(recorder().messages[2]).steps, 3U);
}

TEST_F(RunnerLinkTest, WhatWasSentBeforeTheEndIsDelivered) {
  FromPeer(Heartbeat(1) + Heartbeat(2));
  peer().close();
  link().Send(api::ipc::Shutdown{});  // nobody reads it any more
  EXPECT_FALSE(End().protocol_error);
  EXPECT_EQ(recorder().messages.size(), 2U);
}

TEST_F(RunnerLinkTest, GarbageEndsIt) {
  FromPeer(Heartbeat(1) + std::string(32, '\xff'));
  EXPECT_TRUE(End().protocol_error);
  EXPECT_EQ(recorder().messages.size(), 1U);
}

// Its body is not waited for.
TEST_F(RunnerLinkTest, AHeaderOfAFrameTooLargeForItsTypeEndsIt) {
  std::string header = Heartbeat(1).substr(0, api::ipc::kHeaderBytes);
  header[10] = 1;  // 64 KiB
  FromPeer(header);
  EXPECT_TRUE(End().protocol_error);
}

// However much a runner sends, what else the I/O thread has to do waits for 64 KiB of it at most.
TEST_F(RunnerLinkTest, OthersHaveTheirTurnsBetweenReads) {
  const std::string frame = Heartbeat(1);
  const size_t count = (size_t{128} << 10) / frame.size();
  std::string frames;
  for (size_t i = 0; i < count; ++i) frames += frame;
  FromPeer(frames);
  size_t seen = 0;
  size_t most = 0;
  std::function<void()> take_turn = [&] {
    most = std::max(most, recorder().messages.size() - std::exchange(seen, recorder().messages.size()));
    if (seen < count) boost::asio::post(loop().executor(), take_turn);
  };
  boost::asio::post(loop().executor(), take_turn);
  loop().RunUntil([&] { return seen == count; });
  EXPECT_LE((most - 1) * frame.size(), size_t{64} << 10);
}

TEST_F(RunnerLinkTest, AFrameForTheOtherSideEndsIt) {
  FromPeer(api::ipc::Encode(api::ipc::ToRunner(api::ipc::Shutdown{})));
  EXPECT_TRUE(End().protocol_error);
}

TEST_F(RunnerLinkTest, ARefusedMessageEndsItAndTheRestIsNotDelivered) {
  recorder().refuse_at = 2;
  FromPeer(Heartbeat(1) + Heartbeat(2) + Heartbeat(3));
  EXPECT_TRUE(End().protocol_error);
  EXPECT_EQ(End().reason, "protocol error: not wanted");
  EXPECT_EQ(recorder().messages.size(), 2U);
}

TEST_F(RunnerLinkTest, SendsInOrder) {
  std::string expected;
  for (int32_t i = 0; i < 100; ++i) {
    const api::ipc::ToRunner message = api::ipc::Credit{api::RequestId{1}, i};
    expected += api::ipc::Encode(message);
    link().Send(message);
  }
  std::string received;
  peer().non_blocking(true);
  loop().RunUntil([&] {
    char buffer[4096];
    boost::system::error_code error;
    const size_t bytes = peer().read_some(boost::asio::buffer(buffer), error);
    received.append(buffer, bytes);
    return received.size() >= expected.size() || (error && error != boost::asio::error::would_block);
  });
  EXPECT_EQ(received, expected);
}

// One at a time, the last would wait for everything else that the I/O thread has to do, as many times as
// others wait before it.
TEST_F(RunnerLinkTest, SmallFramesThatWaitAreSentTogether) {
  constexpr uint64_t kFrames = 200;
  for (uint64_t id = 1; id <= kFrames; ++id) ASSERT_TRUE(Submit(id, 100));
  size_t turns = 0;
  bool all_sent = false;
  std::function<void()> take_turn = [&] {
    ++turns;
    if (!all_sent) boost::asio::post(loop().executor(), take_turn);
  };
  boost::asio::post(loop().executor(), take_turn);
  EXPECT_EQ(ReadFrames(kFrames).size(), kFrames);
  all_sent = true;
  loop().Poll();
  EXPECT_LT(turns, kFrames / 20);
}

constexpr size_t kLarge = size_t{4} << 20;

TEST_F(RunnerLinkTest, ASmallRequestWaitsForOneLargeFrameOnly) {
  Submit(1, kLarge);
  loop().Poll();  // it is being sent, and fills the socket
  Submit(2, kLarge);
  Submit(3, 100);
  Submit(4, kLarge);
  Submit(5, 100);
  EXPECT_EQ(ReadFrames(5), (std::vector<std::string>{"1", "3", "5", "2", "4"}));
}

// Nothing about a request is sent before it.
TEST_F(RunnerLinkTest, ControlFramesWaitForOneLargeFrameOnly) {
  Submit(1, kLarge);
  loop().Poll();
  Submit(2, kLarge);
  Submit(3, kLarge);
  link().Send(api::ipc::Credit{api::RequestId{3}, 1});
  link().Send(api::ipc::Credit{api::RequestId{1}, 1});
  link().Send(api::ipc::Cancel{api::RequestId{1}});
  link().Send(api::ipc::Shutdown{});
  EXPECT_EQ(ReadFrames(7),
            (std::vector<std::string>{"1", "credit 1", "cancel 1", "2", "3", "credit 3", "other"}));
}

TEST_F(RunnerLinkTest, ACanceledRequestThatStillWaitsIsNotSent) {
  Submit(1, kLarge);
  loop().Poll();
  EXPECT_TRUE(Submit(2, 10 * kLarge));
  EXPECT_FALSE(Submit(3, 4 * kLarge));
  link().Send(api::ipc::Cancel{api::RequestId{2}});
  EXPECT_TRUE(Submit(3, 4 * kLarge)) << "its room is free again";
  EXPECT_EQ(ReadFrames(2), (std::vector<std::string>{"1", "3"}));
}

// However much one party sends, the last eighth is for others and for what is small.
TEST_F(RunnerLinkTest, APartysLargeRequestsLeaveRoomForOthers) {
  uint64_t id = 0;
  while (Submit(++id, kLarge, "alice")) ASSERT_LT(id, 100U);
  EXPECT_EQ(id, 14U);  // 7/8 of the room, less the headers
  EXPECT_TRUE(Submit(100, 1000, "alice"));
  EXPECT_TRUE(Submit(101, kLarge, "bob"));
  EXPECT_FALSE(Submit(102, 2 * kLarge, "bob"));
  link().Send(api::ipc::Cancel{api::RequestId{2}});
  EXPECT_FALSE(Submit(103, kLarge, "alice"));
  EXPECT_TRUE(Submit(104, kLarge, "carol"));
  loop().Poll();
  EXPECT_FALSE(recorder().end);
}

TEST_F(RunnerLinkTest, ControlFramesHaveRoomBehindAFullQueue) {
  uint64_t id = 0;
  while (Submit(++id, 1000)) ASSERT_LT(id, 4 * RunnerLink::kQueuedFramesMax) << "the queue has no bound";
  for (uint64_t i = 0; i < 1000; ++i) link().Send(api::ipc::Credit{api::RequestId{0}, 1});
  loop().Poll();
  EXPECT_FALSE(recorder().end);
}

TEST_F(RunnerLinkTest, APeerThatDoesNotReadEndsIt) {
  uint64_t id = 0;
  while (Submit(++id, 4096)) {
    if (id % 1000 == 0) loop().Poll();
    ASSERT_LT(id, 4 * RunnerLink::kQueuedFramesMax) << "the queue has no bound";
  }
  loop().Poll();
  EXPECT_FALSE(recorder().end);
  for (size_t i = 0; i <= RunnerLink::kQueuedFramesMax; ++i) link().Send(api::ipc::InspectEngine{i});
  EXPECT_TRUE(End().protocol_error);
  EXPECT_EQ(End().reason, "it stopped reading");
}

TEST_F(RunnerLinkTest, RefusesRoomForMoreBytesThanItsBound) {
  EXPECT_TRUE(link().HasRoomFor(kBytesMax - kBytesMax / 8));
  EXPECT_FALSE(link().HasRoomFor(kBytesMax - kBytesMax / 8 + 1));
  EXPECT_FALSE(link().HasRoomFor(kBytesMax + 1));
}

}  // namespace
}  // namespace quire::scheduler
