#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "api/base/io_thread.h"
#include "api/ipc/snapshot_link.h"
#include "server/tier/snapshot_service.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
namespace ipc = api::ipc;
using ipc::SnapshotHeader;
using ipc::SnapshotMessage;

constexpr std::chrono::seconds kPatience(60);

// The service, and the runner's side of a link.
class TierSessions : public ::testing::Test {
 protected:
  TierSessions() {
    spdlog::set_level(spdlog::level::off);
    std::string pattern = (fs::temp_directory_path() / "quire-session-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TierSessions() override {
    spdlog::set_level(spdlog::level::info);
    fs::remove_all(folder_);
  }

  static bool Send(int fd, const SnapshotHeader& header, std::string_view text) {
    std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
    message += text;
    return ::send(fd, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
  }
  static SnapshotHeader ReceiveHeader(int fd) {
    SnapshotHeader header;
    const bool whole = ::recv(fd, &header, sizeof(header), 0) == sizeof(header);
    return whole ? header : SnapshotHeader{.type = SnapshotMessage::kFailed};
  }
  static SnapshotMessage Receive(int fd) { return ReceiveHeader(fd).type; }
  static void PutTokens(void* memory, int32_t token) {
    const std::array<int32_t, 4> tokens{token, token, token, token};
    std::memcpy(static_cast<std::byte*>(memory) + ipc::kOfferTokensArea, tokens.data(), sizeof(tokens));
  }
  size_t FilesUnderWay() const {
    return static_cast<size_t>(std::ranges::count_if(fs::directory_iterator(folder_), [](const auto& entry) {
      return entry.path().extension() != ".quire-prefix" && entry.path().filename() != "secret";
    }));
  }
  template <class Condition>
  static bool Becomes(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return condition();
  }

  fs::path folder_;
};

// The next runner's link is made on the I/O thread, which removes the sessions that are over.
TEST_F(TierSessions, ARunnerThatEndsWhileItStoresLeavesNothingToTheIoThread) {
  SnapshotService service({.folder = folder_, .budget_bytes = size_t{1} << 30}, "/proc/self/exe");
  service.Begin();
  ASSERT_TRUE(Becomes([&] { return service.opened().has_value(); }));
  const size_t before = FilesUnderWay();
  auto ends = service.Connect("m", "model");
  ASSERT_TRUE(ends.has_value());
  void* memory =
      ::mmap(nullptr, ipc::kSnapshotMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ends->memory.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const int fd = ends->socket.get();
  ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kHello, .tokens = 4}, "class"));
  ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kOffer, .generation = 1, .tokens = 4}, "0:"));
  ASSERT_EQ(Receive(fd), SnapshotMessage::kWanted);
  ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kPiece, .generation = 1, .bytes = 10, .total = 100}, ""));
  ASSERT_TRUE(Becomes([&] { return FilesUnderWay() > before; }));
  ends.reset();
  EXPECT_TRUE(Becomes([&] { return FilesUnderWay() == before; })) << "its own thread removes it";
  ::munmap(memory, ipc::kSnapshotMemoryBytes);
  const uint64_t blocking_calls = api::BlockingCallsOnIoThread();
  {
    const api::IoThreadMark io_thread;
    EXPECT_TRUE(service.Connect("m", "model").has_value());
  }
  EXPECT_EQ(api::BlockingCallsOnIoThread(), blocking_calls);
}

// A piece of a store that was canceled says nothing of the next one, whose tokens are where its were.
TEST_F(TierSessions, ACanceledStoreStoresNothingOfTheNext) {
  SnapshotService service({.folder = folder_, .budget_bytes = size_t{1} << 30}, "/proc/self/exe");
  service.Begin();
  ASSERT_TRUE(Becomes([&] { return service.opened().has_value(); }));
  auto ends = service.Connect("m", "model");
  ASSERT_TRUE(ends.has_value());
  void* memory =
      ::mmap(nullptr, ipc::kSnapshotMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, ends->memory.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const int fd = ends->socket.get();
  ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kHello, .tokens = 4}, "class"));
  uint64_t generation = 0;
  for (const bool asked : {true, false}) {  // whether it was asked for its first piece before it was canceled
    const uint64_t first = ++generation, second = ++generation;
    const auto piece = [&](uint64_t of, char byte) {
      std::memset(static_cast<std::byte*>(memory) + ipc::kStoredArea, byte, 100);
      return Send(fd, {.type = SnapshotMessage::kPiece, .generation = of, .bytes = 100, .total = 100}, "");
    };
    PutTokens(memory, asked ? 1 : 3);
    ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kOffer, .generation = first, .tokens = 4}, "0:canceled"));
    if (asked) {
      ASSERT_EQ(Receive(fd), SnapshotMessage::kWanted);
    }
    PutTokens(memory, asked ? 2 : 4);
    ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kCancelStore, .generation = first}, ""));
    ASSERT_TRUE(piece(first, 'x'));
    ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kOffer, .generation = second, .tokens = 4}, "0:next"));
    SnapshotHeader answer = ReceiveHeader(fd);
    if (answer.generation == first) answer = ReceiveHeader(fd);
    ASSERT_EQ(answer.type, SnapshotMessage::kWanted);
    ASSERT_EQ(answer.generation, second);
    ASSERT_TRUE(piece(first, 'x'));
    ASSERT_TRUE(piece(second, 'b'));
    ASSERT_EQ(Receive(fd), SnapshotMessage::kStored);
  }
  const auto tier = service.opened()->tier;
  ASSERT_EQ(tier->Prefixes().size(), 2u);
  for (const StoredPrefix& prefix : tier->Prefixes()) {
    EXPECT_EQ(prefix.origin.isolation, "0:next");
    const auto reader = tier->OpenSegment(prefix.id);
    ASSERT_NE(reader, nullptr);
    EXPECT_EQ(reader->tokens()[0] % 2, 0);
    std::string bytes(100, '\0');
    ASSERT_TRUE(reader->Read(bytes));
    EXPECT_EQ(bytes, std::string(100, 'b'));
  }
  ::munmap(memory, ipc::kSnapshotMemoryBytes);
}

TEST_F(TierSessions, ASizeThatARunnerStatesIsNotAddedUp) {
  SnapshotService service({.folder = folder_, .budget_bytes = size_t{1} << 30}, "/proc/self/exe");
  service.Begin();
  ASSERT_TRUE(Becomes([&] { return service.opened().has_value(); }));
  const size_t before = FilesUnderWay();
  auto ends = service.Connect("m", "model");
  ASSERT_TRUE(ends.has_value());
  const int fd = ends->socket.get();
  ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kHello, .tokens = 4}, "class"));
  uint64_t generation = 0;
  for (const uint64_t total :
       {UINT64_MAX, UINT64_MAX - 200, UINT64_MAX - 5000, uint64_t{1} << 50, uint64_t{2} << 30}) {
    ASSERT_TRUE(Send(fd, {.type = SnapshotMessage::kOffer, .generation = ++generation, .tokens = 4}, "0:"));
    ASSERT_EQ(Receive(fd), SnapshotMessage::kWanted);
    ASSERT_TRUE(Send(
        fd, {.type = SnapshotMessage::kPiece, .generation = generation, .bytes = 10, .total = total}, ""));
    EXPECT_EQ(Receive(fd), SnapshotMessage::kStored) << total;
    EXPECT_EQ(FilesUnderWay(), before) << total;
  }
}

}  // namespace
}  // namespace quire::server
