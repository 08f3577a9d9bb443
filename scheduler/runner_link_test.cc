#include "scheduler/runner_link.h"

#include <gtest/gtest.h>

#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <optional>
#include <string>
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
  RunnerLinkTest()
      : gate_(loop_.executor()), peer_(loop_.executor()), recorder_(std::make_shared<Recorder>()) {
    Socket ours(loop_.executor());
    boost::asio::local::connect_pair(ours, peer_);
    link_ = std::make_shared<RunnerLink>(std::move(ours), recorder_);
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

TEST_F(RunnerLinkTest, ASmallRequestWaitsForOneLargeFrameOnly) {
  const auto submit = [this](uint64_t id, size_t bytes) {
    api::ipc::Submit message{api::RequestId{id}, {}};
    message.request.prompt = api::RawPrompt{std::string(bytes, 'x')};
    EXPECT_TRUE(link().TrySend(std::move(message)));
  };
  constexpr size_t kLarge = size_t{4} << 20;
  submit(1, kLarge);
  loop().Poll();  // it is being sent, and fills the socket
  submit(2, kLarge);
  submit(3, 100);
  submit(4, kLarge);
  link().Send(api::ipc::Cancel{api::RequestId{2}});
  submit(5, 100);

  api::ipc::FrameReader frames;
  std::vector<std::string> order;
  peer().non_blocking(true);
  loop().RunUntil([&] {
    std::vector<char> buffer(size_t{1} << 20);
    boost::system::error_code error;
    const size_t bytes = peer().read_some(boost::asio::buffer(buffer), error);
    frames.Append({buffer.data(), bytes});
    while (const auto frame = frames.Next().value()) {
      const auto message = api::ipc::DecodeToRunner(*frame).value();
      if (const auto* sent = std::get_if<api::ipc::Submit>(&message)) {
        order.push_back(std::to_string(static_cast<uint64_t>(sent->id)));
      } else {
        order.push_back("cancel");
      }
    }
    return order.size() == 6 || (error && error != boost::asio::error::would_block);
  });
  EXPECT_EQ(order, (std::vector<std::string>{"1", "3", "5", "2", "4", "cancel"}));
}

TEST_F(RunnerLinkTest, APeerThatDoesNotReadEndsIt) {
  api::ipc::Submit submit{api::RequestId{1}, {}};
  submit.request.prompt = api::RawPrompt{std::string(4096, 'x')};
  const api::ipc::ToRunner message = submit;
  size_t sent = 0;
  while (link().TrySend(message)) {
    if (++sent % 1000 == 0) loop().Poll();
    ASSERT_LT(sent, 4 * RunnerLink::kQueuedFramesMax) << "the queue has no bound";
  }
  EXPECT_EQ(link().TrySend(message).error().code, api::ErrorCode::kOverloaded);
  loop().Poll();
  EXPECT_FALSE(recorder().end);
  link().Send(message);
  EXPECT_TRUE(End().protocol_error);
  EXPECT_EQ(End().reason, "it stopped reading");
}

TEST_F(RunnerLinkTest, RefusesRoomForMoreBytesThanItsBound) {
  EXPECT_TRUE(link().HasRoomFor(RunnerLink::kQueuedBytesMax));
  EXPECT_FALSE(link().HasRoomFor(RunnerLink::kQueuedBytesMax + 1));
}

}  // namespace
}  // namespace quire::scheduler
