#include "server/cli/progress.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdio>
#include <string>

namespace quire::cli {
namespace {

const std::string kDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

int64_t Characters(const std::string& text) {
  return utf8proc_decompose(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                            static_cast<utf8proc_ssize_t>(text.size()), nullptr, 0, utf8proc_option_t{});
}

std::string Written(std::FILE* file) {
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(ProgressLine, FitsAndHasTwelveDigitsOfADigest) {
  EXPECT_EQ(ProgressLine("using " + kDigest, 0, 0, 79), "using 0123456789ab");
  for (const int columns : {10, 40, 79, 200}) {
    for (const int64_t completed : {0, 1, 500'000'000, 999'999'999}) {
      EXPECT_LE(Characters(ProgressLine("copying file " + kDigest, completed, 1'000'000'000, columns)),
                columns);
    }
  }
  EXPECT_EQ(
      ProgressLine("copying file " + kDigest, 500'000'000, 1'000'000'000, 60),
      "copying file 0123456789ab  50% \u2595\u2588\u2588\u2588\u2588\u2588\u2588       \u258F 500 MB/1.0 GB");
  EXPECT_EQ(ProgressLine("sha256: sha256:12 and " + kDigest + "0", 0, 0, 200),
            "sha256: sha256:12 and " + kDigest + "0");
}

TEST(ProgressLine, HasTheRateBehindTheSizes) {
  EXPECT_EQ(RateText(0, 10, 5), "");
  EXPECT_EQ(RateText(10, 10, 0.5), "");
  EXPECT_EQ(RateText(60'000'000, 840'000'000, 10), "6.0 MB/s, 2 min 20 s left");
  EXPECT_TRUE(
      ProgressLine("x", 1, 2'000'000, 100, "6.0 MB/s, 1 s left").ends_with("1 B/2.0 MB, 6.0 MB/s, 1 s left"));
}

TEST(Progress, EachLineIsDrawnAgainWhereItStands) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 80, 3);
    progress.Update("one", 0, 2);
    progress.Update("two", 0, 0);
    progress.Update("one", 1, 2);
    progress.Update("two", 0, 0);  // a step that is known
    progress.Update("three", 0, 0);
    progress.Update("four", 0, 0);
    progress.Update("one", 2, 2);  // it has left the screen
  }
  const std::string none = ProgressLine("one", 0, 2, 79), half = ProgressLine("one", 1, 2, 79);
  EXPECT_EQ(Written(file), "\r" + none + "\x1b[K\n\rtwo\x1b[K\x1b[1A\r" + half +
                               "\x1b[K\x1b[1B\r\n\rthree\x1b[K\n\rfour\x1b[K\n");
  std::fclose(file);
}

TEST(Progress, ElsewhereEachLineIsPrintedOnce) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 0, 0);
    for (int i = 0; i < 3; ++i) progress.Update("copying file " + kDigest, i, 3);
    progress.Update("success", 0, 0);
  }
  EXPECT_EQ(Written(file), "copying file 0123456789ab\nsuccess\n");
  std::fclose(file);
}

}  // namespace
}  // namespace quire::cli
