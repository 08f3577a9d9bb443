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

TEST(PartialBlob, SaysThatThereIsNoRoomAndGoesWhenNobodyWritesToIt) {
  std::string directory = (fs::temp_directory_path() / "quire-partial-XXXXXX").string();
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const auto blobs = [&directory] { return *StoreDirectory::OpenRoot(directory); };
  const std::string blob = "sha256-" + std::string(64, '0');
  {
    auto partial = PartialBlob::Open(blobs(), blob);
    ASSERT_TRUE(partial && *partial);
    const FileSizeLimit limit(1000);
    EXPECT_TRUE((*partial)->Append(std::string(600, 'x')));
    const auto appended = (*partial)->Append(std::string(600, 'x'));
    EXPECT_TRUE(!appended && IsOutOfRoom(appended.error()));
    PartialBlob::RemoveUnused(blobs(), blob);
    EXPECT_FALSE(fs::is_empty(directory));
  }
  PartialBlob::RemoveUnused(blobs(), blob);
  EXPECT_TRUE(fs::is_empty(directory));
  fs::remove_all(directory);
}

}  // namespace
}  // namespace quire::server
