#include "server/store_cleanup.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "api/base/io_thread.h"
#include "server/registry/partial_blob.h"
#include "server/testing/store_fixture.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using testing::StoreFixture;
using testing::WriteFile;

constexpr std::chrono::milliseconds kInterval(20);
constexpr std::chrono::seconds kPatience(60);

// A store with one model, which is cleaned again and again.
class StoreCleanupTest : public ::testing::Test {
 protected:
  StoreCleanupTest() { EXPECT_TRUE(store_.Register(fixture_.New("m"))); }
  ~StoreCleanupTest() override {
    io_.stop();
    pools_.executor.Join();
  }

  void Start() {
    boost::asio::co_spawn(io_, CleanStore(StoreTransfer(store_), pools_, kInterval), boost::asio::detached);
  }
  // False: it has not come true.
  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      const api::IoThreadMark io_thread;
      io_.run_for(kInterval);
    }
    return true;
  }

  // A file that nobody has written to for eight days.
  fs::path AddOld(const fs::path& file) const {
    WriteFile(file, "left behind");
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(24 * 8));
    return file;
  }
  fs::path AddOldPart(const std::string& content) const {
    return AddOld(fixture_.root() / "blobs" / (std::string(PartialBlob::kPrefix) + BlobOf(content)));
  }
  std::string BlobOf(const std::string& content) const { return fixture_.Blob(content).filename().string(); }

  StoreFixture fixture_;
  ModelStore store_ = fixture_.Open();
  WorkPools pools_;
  boost::asio::io_context io_;
};

TEST_F(StoreCleanupTest, RunsAgainAndOnPools) {
  const uint64_t blocking_calls = api::BlockingCallsOnIoThread();
  Start();
  for (const std::string round : {"first", "second", "third"}) {
    const std::vector<fs::path> files = {AddOldPart(round), AddOld(fixture_.Blob("blob of the " + round))};
    EXPECT_TRUE(RunUntil([&files] { return !fs::exists(files[0]) && !fs::exists(files[1]); })) << round;
  }
  EXPECT_EQ(api::BlockingCallsOnIoThread(), blocking_calls);
  EXPECT_TRUE(store_.Find(testing::Named("m")));
}

TEST_F(StoreCleanupTest, LeavesWhatATransferNeeds) {
  const fs::path brought = AddOldPart("being brought");
  const auto partial =
      PartialBlob::Open(*StoreDirectory::OpenRoot(fixture_.root() / "blobs"), BlobOf("being brought"));
  ASSERT_TRUE(partial && *partial);
  const fs::path needed = AddOld(fixture_.Blob("needed"));
  BlobUsers::Lease lease(store_.users());
  lease.Add(BlobOf("needed"));
  Start();
  for (const std::string round : {"first", "second"}) {
    const fs::path part = AddOldPart(round);
    const fs::path blob = AddOld(fixture_.Blob("blob of the " + round));
    EXPECT_TRUE(RunUntil([&] { return !fs::exists(part) && !fs::exists(blob); }));
  }
  EXPECT_TRUE(fs::exists(brought));
  EXPECT_TRUE(fs::exists(needed));
  lease.Release();
  EXPECT_TRUE(RunUntil([&] { return !fs::exists(needed); }));
}

}  // namespace
}  // namespace quire::server
