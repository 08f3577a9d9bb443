#include "runner/sampler/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

namespace quire::runner::sampler {
namespace {

struct Result {
  std::string text;
  std::optional<size_t> stop;
  bool operator==(const Result&) const = default;
};

void PrintTo(const Result& result, std::ostream* out) {
  *out << '"' << result.text << "\" stop " << (result.stop ? static_cast<int>(*result.stop) : -1);
}

// The definition: the stop string that ends first; of those that end together the longest, of equal ones the
// first.
Result Reference(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      if (stop.empty() || stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0)
        continue;
      if (!best || stop.size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

Result Stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Result result;
  for (const std::string& piece : pieces) {
    const auto emission = matcher.Feed(piece);
    EXPECT_FALSE(result.stop && (emission.stop || !emission.text.empty())) << "emits after a match";
    result.text += emission.text;
    if (emission.stop) result.stop = emission.stop;
  }
  result.text += matcher.Flush();
  return result;
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"</end>", "STOP"});
  EXPECT_EQ(matcher.Feed("a < b").text, "a < b");
  EXPECT_EQ(matcher.Feed(" </").text, " ");
  EXPECT_EQ(matcher.Feed("e").text, "");
  EXPECT_EQ(matcher.Feed("x ST").text, "</ex ");
  const auto last = matcher.Feed("OP and more");
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.stop, 1U);
  EXPECT_EQ(matcher.Feed("again").text, "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, FlushGivesWhatWasHeld) {
  StopMatcher matcher({"abcd"});
  EXPECT_EQ(matcher.Feed("xabc").text, "x");
  EXPECT_EQ(matcher.Flush(), "abc");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, TheMatchThatEndsFirstCounts) {
  EXPECT_EQ(Stream({"abcd", "bc"}, {"xabcd"}), (Result{"xa", 1}));
  EXPECT_EQ(Stream({"b", "ab"}, {"xab"}), (Result{"x", 1}));  // end together: the longest
  EXPECT_EQ(Stream({"ab", "ab"}, {"ab"}), (Result{"", 0}));
  EXPECT_EQ(Stream({"aab"}, {"aaab"}), (Result{"a", 0}));
}

TEST(StopMatcher, NothingToStopAt) {
  EXPECT_EQ(Stream({}, {"text"}), (Result{"text", std::nullopt}));
  EXPECT_EQ(Stream({""}, {"text"}), (Result{"text", std::nullopt}));
  EXPECT_EQ(Stream({"", "t"}, {"text"}), (Result{"", 1}));
}

TEST(StopMatcher, CopiesGoSeparateWays) {
  StopMatcher matcher({"ab"});
  EXPECT_EQ(matcher.Feed("xa").text, "x");
  StopMatcher copy = matcher;
  EXPECT_EQ(copy.Feed("b").stop, 0U);
  EXPECT_EQ(matcher.Feed("c").text, "ac");
}

// Whole characters in, whole characters out: a stop string's first byte begins a character.
TEST(StopMatcher, NeverSplitsACharacter) {
  StopMatcher matcher({"\u00E9\u00E8"});
  EXPECT_EQ(matcher.Feed("x\u00E9").text, "x");
  EXPECT_EQ(matcher.Feed("\u00E9").text, "\u00E9");
  EXPECT_EQ(matcher.Feed("\u00EA").text, "\u00E9\u00EA");
}

TEST(StopMatcher, AnyCutGivesTheSameAndNoStopStringGetsOut) {
  std::mt19937 random(3);
  const auto word = [&](size_t length_max) {
    std::string text(random() % (length_max + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 5; i > 0; --i) stops.push_back(word(6) + (random() % 3 == 0 ? "c" : ""));
    std::string text;
    for (size_t i = random() % 10; i > 0; --i) text += word(8) + (random() % 2 == 0 ? "c" : "d");
    const Result expected = Reference(stops, text);
    for (int cutting = 0; cutting < 4; ++cutting) {
      std::vector<std::string> pieces;
      for (size_t at = 0; at < text.size();) {
        const size_t length = cutting == 0 ? text.size() : cutting == 1 ? 1 : random() % 5;
        pieces.push_back(text.substr(at, length));
        at += length;
      }
      ASSERT_EQ(Stream(stops, pieces), expected);
    }
    for (const std::string& stop : stops) {
      if (!stop.empty()) {
        ASSERT_EQ(expected.text.find(stop), std::string::npos);
      }
    }
  }
}

TEST(StopMatcher, ManyLongStopStringsOnAnUnluckyText) {
  std::vector<std::string> stops;
  for (size_t i = 0; i < 500; ++i) stops.push_back(std::string(400 + i, 'a') + "b" + std::to_string(i));
  StopMatcher matcher(stops);
  std::string emitted;
  const std::string text(300'000, 'a');
  for (size_t at = 0; at < text.size(); at += 3)
    emitted += matcher.Feed(std::string_view(text).substr(at, 3)).text;
  EXPECT_EQ(emitted + matcher.Flush(), text);
}

}  // namespace
}  // namespace quire::runner::sampler
