#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
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
  static SnapshotMessage Receive(int fd) {
    SnapshotHeader header;
    return ::recv(fd, &header, sizeof(header), 0) == sizeof(header) ? header.type : SnapshotMessage::kFailed;
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

}  // namespace
}  // namespace quire::server
