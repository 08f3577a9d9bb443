#include "server/cli/line_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <histedit.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace quire::cli {
namespace {

using ::testing::ElementsAre;

class LineHistoryTest : public ::testing::Test {
 protected:
  LineHistoryTest() {
    std::string name = testing::TempDir() + "quire-history-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    file_ = std::filesystem::path(name) / "folder/history";
  }
  ~LineHistoryTest() override { std::filesystem::remove_all(file_.parent_path().parent_path()); }

  // Newest first, as the next process has them.
  std::vector<std::string> Loaded() const {
    const LineHistory history(file_);
    std::vector<std::string> lines;
    HistEvent event;
    for (int r = ::history(history.handle(), &event, H_FIRST); r != -1;
         r = ::history(history.handle(), &event, H_NEXT)) {
      lines.emplace_back(event.str);
    }
    return lines;
  }
  std::string Content() const {
    std::ifstream file(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path file_;
};

TEST_F(LineHistoryTest, ALineIsInTheFileAtOnceAndOnlyItsOwnerReadsIt) {
  LineHistory history(file_);
  history.Add("first");
  EXPECT_THAT(Loaded(), ElementsAre("first"));
  history.Add("second");
  EXPECT_THAT(Loaded(), ElementsAre("second", "first"));
  struct stat status {};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(LineHistoryTest, AnyTextSurvives) {
  const std::string text = "two\nlines\t\\ of \"h\xC3\xA9llo\" \xE2\x82\xAC \\012 #";
  {
    LineHistory history(file_);
    history.Add(text);
    history.Add("after");
  }
  EXPECT_THAT(Loaded(), ElementsAre("after", text));
}

TEST_F(LineHistoryTest, ProcessesAddToOneFile) {
  LineHistory one(file_), other(file_);
  one.Add("of one");
  other.Add("of the other");
  one.Add("again one");
  EXPECT_THAT(Loaded(), ElementsAre("again one", "of the other", "of one"));
}

TEST_F(LineHistoryTest, ALongFileIsCutToItsNewestLines) {
  {
    LineHistory history(file_);
    for (int i = 0; i < 2100; ++i) history.Add("line " + std::to_string(i));
  }
  const auto lines = Loaded();
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front(), "line 2099");
  EXPECT_LE(lines.size(), 1000U);
  const std::string content = Content();
  EXPECT_LE(std::count(content.begin(), content.end(), '\n'), 1001);
}

TEST_F(LineHistoryTest, WithoutAFileNothingIsKept) {
  LineHistory history("");
  history.Add("line");
  EXPECT_THAT(Loaded(), ElementsAre());
}

}  // namespace
}  // namespace quire::cli
