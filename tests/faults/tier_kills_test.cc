// Processes that are killed while they write prefixes: at every call that changes a file, before it, and
// within a write. QUIRE_TIER_ALL: more than 1,000 points instead of a sample.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/tier/disk_tier.h"
#include "tests/faults/fault_control.h"

namespace quire::server {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBudget = 12 * 4096;
constexpr size_t kKept = 8;  // segments that the budget certainly has room for

std::unique_ptr<DiskTier> OpenIn(const fs::path& folder) {
  auto tier = DiskTier::Open({.folder = folder, .budget_bytes = kBudget});
  return tier ? *std::move(tier) : nullptr;
}

SnapshotKey KeyOf(int number) { return HashOf(fmt::format("key {}", number)); }

std::string ContentOf(int number) {
  std::string content(2000, '\0');
  for (size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<char>(HashOf(std::to_string(number))[i % 32]);
  return content;
}

bool Put(DiskTier& tier, int number) {
  const PrefixOrigin origin{.model = "m", .segment_tokens = 8};
  const std::vector<int32_t> tokens(4, number);
  const std::string content = ContentOf(number);
  auto writer = tier.Create({KeyOf(number), HashOf("parent"), 0, 4, false, content.size()}, tokens, &origin);
  return writer && writer->Write(std::span(content).first(1500)) &&
         writer->Write(std::span(content).subspan(1500)) && writer->Commit();
}

// 1 it is there, 0 it is not, -1 it is wrong.
int Get(DiskTier& tier, int number) {
  auto reader = tier.OpenSegment(KeyOf(number));
  if (!reader) return 0;
  std::string content(reader->bytes(), '\0');
  if (!reader->Read(content) || !reader->Verify()) return 0;
  return content == ContentOf(number) ? 1 : -1;
}

// In the child: writes, and says what is written. Nothing is left to be done at its end.
[[noreturn]] void WriteUntilKilled(const fs::path& folder, int segments, int64_t point, int64_t how,
                                   int out) {
  faults::Faults().file_error = how;
  faults::Faults().file_countdown = point;
  auto tier = OpenIn(folder);
  for (int i = 0; tier && i < segments; ++i) {
    if (Put(*tier, i) && ::write(out, &i, sizeof(i)) != sizeof(i)) ::_exit(2);
  }
  ::_exit(tier ? 0 : 3);
}

// The segments whose writing had returned. `killed`: false where the point lies behind the end.
std::vector<int> RunChild(const fs::path& folder, int segments, int64_t point, int64_t how, bool& killed) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) WriteUntilKilled(folder, segments, point, how, pipe[1]);
  ::close(pipe[1]);
  std::vector<int> written;
  for (int number = 0; ::read(pipe[0], &number, sizeof(number)) == sizeof(number);) written.push_back(number);
  ::close(pipe[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  EXPECT_TRUE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << status;
  return written;
}

void CheckWhatIsLeft(const fs::path& folder, const std::vector<int>& written, int segments) {
  auto tier = OpenIn(folder);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->stats().corrupt, 0u);
  for (int i = 0; i < segments; ++i) EXPECT_GE(Get(*tier, i), 0) << i;
  for (size_t i = written.size() - std::min(written.size(), kKept); i < written.size(); ++i) {
    EXPECT_EQ(Get(*tier, written[i]), 1) << written[i];
  }
  for (const auto& file : fs::directory_iterator(folder)) {
    EXPECT_FALSE(file.path().filename().string().starts_with("new-")) << file.path();
  }
  EXPECT_TRUE(Put(*tier, segments)) << "it goes on";
  EXPECT_EQ(Get(*tier, segments), 1);
}

TEST(TierKills, LoseAtMostWhatWasBeingWritten) {
  const bool all = std::getenv("QUIRE_TIER_ALL") != nullptr;
  const int segments = all ? 90 : 24;
  const int64_t stride = all ? 1 : 7;
  spdlog::set_level(spdlog::level::off);
  std::string pattern = (fs::temp_directory_path() / "quire-kills-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  int points = 0;
  for (const int64_t how : {faults::kKillBefore, faults::kKillInside}) {
    bool killed = true;
    for (int64_t point = 1; killed && !::testing::Test::HasFailure(); point += stride) {
      SCOPED_TRACE(fmt::format("{} of kind {}", point, how));
      const fs::path tier = folder / fmt::format("{}-{}", how, point);
      const std::vector<int> written = RunChild(tier, segments, point, how, killed);
      if (killed) ++points;
      CheckWhatIsLeft(tier, written, segments);
      fs::remove_all(tier);
    }
  }
  spdlog::set_level(spdlog::level::info);
  fs::remove_all(folder);
  EXPECT_GT(points, all ? 1000 : 30);
  RecordProperty("points", points);
}

}  // namespace
}  // namespace quire::server
