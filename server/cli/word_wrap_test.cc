#include "server/cli/word_wrap.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::cli {
namespace {

// The screen of a terminal of this width that interprets WordWrap's output.
std::string Shown(const std::vector<std::string>& pieces, int width) {
  WordWrap wrap;
  std::string screen;
  for (const std::string& piece : pieces) {
    std::string bytes = wrap.Put(piece, width);
    for (size_t at = 0; at < bytes.size();) {
      if (bytes.compare(at, 2, "\033[") != 0) {
        screen += bytes[at++];
        continue;
      }
      size_t used = 0;
      const int columns = std::stoi(bytes.substr(at + 2), &used);
      EXPECT_EQ(bytes.substr(at + 2 + used, 4), "D\033[K");
      screen.resize(screen.size() - static_cast<size_t>(columns));
      at += 2 + used + 4;
    }
  }
  for (size_t at; (at = screen.find(" \n")) != std::string::npos;) screen.erase(at, 1);  // nobody sees them
  return screen;
}

TEST(WordWrap, BreaksBetweenWordsHoweverTheyArrive) {
  const std::string text = "The quick brown fox jumps over it";
  const std::string wrapped = "The quick\nbrown fox\njumps over\nit";
  EXPECT_EQ(Shown({text}, 12), wrapped);
  std::vector<std::string> characters;
  for (const char c : text) characters.emplace_back(1, c);
  EXPECT_EQ(Shown(characters, 12), wrapped);
}

TEST(WordWrap, KeepsTheTextsOwnBreaks) {
  EXPECT_EQ(Shown({"one\n  two\nthree four five"}, 12), "one\n  two\nthree four\nfive");
}

TEST(WordWrap, CutsAWordThatIsLongerThanALine) {
  EXPECT_EQ(Shown({"abcdefghijklmnopqrstuvwxyz"}, 11), "abcdefghij\nklmnopqrst\nuvwxyz");
}

TEST(WordWrap, CountsColumnsNotBytes) {
  EXPECT_EQ(Shown({"\u00e4\u00f6\u00fc\u00df \u00e9\u00e8\u00ea abc"}, 13),
            "\u00e4\u00f6\u00fc\u00df \u00e9\u00e8\u00ea abc");
  EXPECT_EQ(Shown({"\u6f22\u5b57 \u6f22\u5b57 \u6f22\u5b57"}, 11), "\u6f22\u5b57 \u6f22\u5b57\n\u6f22\u5b57");
}

TEST(WordWrap, LeavesTextAloneWithoutATerminal) {
  WordWrap wrap;
  EXPECT_EQ(wrap.Put("a long line of words", 0), "a long line of words");
}

}  // namespace
}  // namespace quire::cli
