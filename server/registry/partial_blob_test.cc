#include "server/registry/partial_blob.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>

namespace quire::server {
namespace {

namespace fs = std::filesystem;

// No file of this process may grow beyond this size.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(PartialBlob, SaysThatThereIsNoRoomAndGoes) {
  std::string directory = (fs::temp_directory_path() / "quire-partial-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string blob = "sha256-" + std::string(64, '0');
  {
    auto partial = PartialBlob::Open(*StoreDirectory::OpenRoot(directory), blob);
    ASSERT_TRUE(partial && *partial);
    const FileSizeLimit limit(1000);
    EXPECT_TRUE((*partial)->Append(std::string(600, 'x')));
    EXPECT_FALSE((*partial)->out_of_room());
    EXPECT_FALSE((*partial)->Append(std::string(600, 'x')));
    EXPECT_TRUE((*partial)->out_of_room());
    EXPECT_TRUE((*partial)->Remove());
  }
  EXPECT_TRUE(fs::is_empty(directory));
  fs::remove_all(directory);
}

}  // namespace
}  // namespace quire::server
