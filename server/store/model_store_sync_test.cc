// What a crash of the machine must not take back: every new directory is synced in the one above it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "server/testing/store_fixture.h"

namespace {

// Tests of this program write to stores from several threads.
class SyncedPaths {
 public:
  void Add(std::string path) {
    const std::lock_guard lock(mutex_);
    paths_.insert(std::move(path));
  }
  bool Contains(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return paths_.contains(path);
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    paths_.clear();
  }

 private:
  std::mutex mutex_;
  std::set<std::string> paths_;
};

SyncedPaths& Synced() {
  static SyncedPaths paths;
  return paths;
}

}  // namespace

// In the place of the C library's, for this whole program.
extern "C" int fsync(int fd) {
  std::error_code ignored;
  const auto path = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), ignored);
  Synced().Add(path.string());
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace quire::server {
namespace {

using testing::Named;
using testing::StoreFixture;

void ExpectSynced(const std::filesystem::path& directory) {
  EXPECT_TRUE(Synced().Contains(directory.string())) << directory;
}

TEST(StoreSync, NewDirectoriesAreOnDisk) {
  const StoreFixture fixture;
  Synced().Clear();
  ModelStore store = fixture.Open();
  ExpectSynced(fixture.directory());
  ExpectSynced(fixture.root());
  Synced().Clear();
  ASSERT_TRUE(store.Register(fixture.New("m")));
  const auto host = fixture.root() / "manifests/registry.ollama.ai";
  ExpectSynced(fixture.root() / "manifests");
  ExpectSynced(host);
  ExpectSynced(host / "library");
  ExpectSynced(host / "library/m");
  Synced().Clear();
  ASSERT_TRUE(store.Copy(Named("m"), Named("copy")));
  ExpectSynced(host / "library");
}

}  // namespace
}  // namespace quire::server
