#include "server/http/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "api/base/file_descriptor.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kDigest = "sha256:" + std::string(64, 'a');

class KeyFile : public ::testing::Test {
 protected:
  KeyFile() : folder_(fs::temp_directory_path() / fmt::format("key-file-{}", ::getpid())) {
    fs::create_directory(folder_);
  }
  ~KeyFile() override { fs::remove_all(folder_); }

  void Write(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  std::string Text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static mode_t ModeOf(const fs::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }
  // What `work` gives while no file grows beyond this.
  template <class Work>
  static bool WithRoom(size_t bytes, Work work) {
    struct rlimit before {};
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit now { bytes, before.rlim_max };
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
    const bool result = work();
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    return result;
  }
  // Applies to this thread, as long as it runs.
  static bool RefuseToChangeOwners() {
    constexpr uint32_t kNumber = offsetof(seccomp_data, nr);
    std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber)};
    for (const uint32_t call : {__NR_fchown, __NR_fchownat}) {
      code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
      code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter = {static_cast<unsigned short>(code.size()), code.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
  }
  // No copy of the file is left over.
  size_t Files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  const fs::path folder_;
  const fs::path path_ = folder_ / "keys";
};

TEST_F(KeyFile, AKeyIsAddedToAFileWhoseLastLineLacksItsEnd) {
  Write("# ours\na admin " + kDigest);
  const auto added = AddKey(path_, "b", Role::kInference, {.weight = 2});
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(added->keys.size(), 2U);
  ASSERT_NE(added->keys.Find(added->secret), nullptr);
  EXPECT_EQ(added->keys.Find(added->secret)->limits.weight, 2);
  const auto again = AddKey(path_, "b", Role::kInference, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().field, "name");
  EXPECT_FALSE(AddKey(path_, "two words", Role::kInference, {}));
  EXPECT_EQ(KeyRing::Read(path_)->size(), 2U);
  fs::remove(path_);
  EXPECT_FALSE(AddKey(path_, "b", Role::kInference, {}));
}

TEST_F(KeyFile, ANewFileIsItsOwnersAlone) {
  const auto made = MakeKey("a", Role::kAdmin, {});
  ASSERT_TRUE(made);
  const fs::path link = folder_ / "link";
  fs::create_symlink("keys", link);  // to a file that is not there yet
  const auto keys = AppendKey(link, *made);
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->size(), 1U);
  EXPECT_EQ(Text(), made->line + "\n");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ModeOf(path_), 0600U);
  EXPECT_EQ(Files(), 2U);
}

TEST_F(KeyFile, AnAddedKeyLeavesModeAndLinks) {
  Write("a admin " + kDigest + "\n", 0640);
  const fs::path link = folder_ / "link";
  fs::create_symlink(path_, link);
  const auto added = AddKey(link, "b", Role::kInference, {});
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(added->keys.size(), 2U);
  EXPECT_EQ(KeyRing::Read(path_)->size(), 2U);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(ModeOf(path_), 0640U);
  EXPECT_EQ(Files(), 2U);
}

// As the unit of the service has it (SystemCallFilter=~@privileged).
TEST_F(KeyFile, AnOwnerThatStaysNeedsNoCall) {
  Write("a admin " + kDigest + "\nb inference " + kDigest + "\n");
  std::thread([&] {
    ASSERT_TRUE(RefuseToChangeOwners());
    ASSERT_NE(::fchownat(AT_FDCWD, path_.c_str(), ::geteuid(), ::getegid(), 0), 0);
    const auto removed = RemoveKey(path_, "b");
    EXPECT_TRUE(removed) << removed.error().message;
    EXPECT_TRUE(AddKey(path_, "c", Role::kInference, {}));
  }).join();
  EXPECT_EQ(KeyRing::Read(path_)->size(), 2U);
}

// Both looked before either wrote: a second line of one name would keep the daemon from starting.
TEST_F(KeyFile, ALineThatNoDaemonWouldReadIsNotAdded) {
  const std::string text = "a admin " + kDigest + "\n";
  Write(text);
  const auto twice = AppendKey(path_, {.secret = {}, .line = "a admin " + kDigest});
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr(path_.string() + ": line 2: duplicate key name a"));
  EXPECT_EQ(Text(), text);
  EXPECT_EQ(Files(), 1U);
}

// The disk is full after each number of bytes: 1000 requests per minute never become 1.
TEST_F(KeyFile, AWriteThatEndsEarlyLeavesTheOldFile) {
  const std::string old = "a admin " + kDigest + "\nb inference " + kDigest + "\n";
  const NewKey key = {.secret = {}, .line = "c inference " + kDigest + " per_minute=1000"};
  const std::string longer = old + key.line + "\n";
  for (size_t room = 0; room <= longer.size(); ++room) {
    Write(old);
    const bool added = WithRoom(room, [&] { return AppendKey(path_, key).has_value(); });
    EXPECT_EQ(added, room == longer.size()) << room;
    EXPECT_EQ(Text(), added ? longer : old) << room;
    if (room % 16 != 0) continue;
    Write(old);
    const bool removed = WithRoom(room, [&] { return RemoveKey(path_, "a").has_value(); });
    EXPECT_EQ(removed, Text() != old) << room;
    EXPECT_EQ(KeyRing::Read(path_)->size(), removed ? 1U : 2U) << room;
    fs::remove(path_);
    const bool made = WithRoom(room, [&] { return AppendKey(path_, key).has_value(); });
    EXPECT_EQ(made, fs::exists(path_)) << room;
    EXPECT_EQ(Text(), made ? key.line + "\n" : "") << room;
    EXPECT_EQ(Files(), made ? 1U : 0U) << room;
  }
}

TEST_F(KeyFile, OneKeyIsRemovedAndAllElseStays) {
  Write("# bob left\n\n bob inference " + kDigest + " parallel=2\r\nbobby admin " + kDigest + "\n# end",
        0640);
  const auto left = RemoveKey(path_, "bob");
  ASSERT_TRUE(left) << left.error().message;
  EXPECT_EQ(left->size(), 1U);
  EXPECT_TRUE(left->Names("bobby"));
  EXPECT_EQ(Text(), "# bob left\n\nbobby admin " + kDigest + "\n# end");
  EXPECT_EQ(ModeOf(path_), 0640U);
  EXPECT_EQ(Files(), 1U);
}

TEST_F(KeyFile, TheLastLineIsRemovedWithoutItsEnd) {
  Write("a admin " + kDigest + "\nb inference " + kDigest);
  ASSERT_TRUE(RemoveKey(path_, "b"));
  EXPECT_EQ(Text(), "a admin " + kDigest + "\n");
}

TEST_F(KeyFile, NeitherTheOnlyKeyNorAnUnknownOneIsRemoved) {
  const std::string text = "a admin " + kDigest + "\n";
  Write(text);
  const auto only = RemoveKey(path_, "a");
  ASSERT_FALSE(only);
  EXPECT_EQ(only.error().code, api::ErrorCode::kForbidden);
  const auto unknown = RemoveKey(path_, "#");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, api::ErrorCode::kNotFound);
  EXPECT_EQ(Text(), text);
  Write("nonsense\n" + text);
  EXPECT_FALSE(RemoveKey(path_, "a"));
  fs::remove(path_);
  EXPECT_FALSE(RemoveKey(path_, "a"));
  EXPECT_EQ(Files(), 0U);
}

TEST_F(KeyFile, ALinkToItStays) {
  Write("a admin " + kDigest + "\nb inference " + kDigest + "\n");
  const fs::path link = folder_ / "link";
  fs::create_symlink(path_, link);
  ASSERT_TRUE(RemoveKey(link, "b"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(Text(), "a admin " + kDigest + "\n");
}

TEST_F(KeyFile, NobodyElseChangesItMeanwhile) {
  const std::string text = "a admin " + kDigest + "\nb inference " + kDigest + "\n";
  Write(text);
  const api::FileDescriptor other(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  const auto removed = RemoveKey(path_, "b");
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, api::ErrorCode::kUnavailable);
  EXPECT_THAT(removed.error().message, HasSubstr("another process"));
  EXPECT_EQ(Text(), text);
}

}  // namespace
}  // namespace quire::server
