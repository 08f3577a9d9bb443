#include "api/base/duration.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace quire::api {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;

TEST(GoDuration, ReadsWhatGoReads) {
  const std::vector<std::pair<std::string, nanoseconds>> cases = {
      {"5m", 5min},
      {"1h30m", 90min},
      {"1500ms", 1500ms},
      {"-1s", -1s},
      {"0", 0s},
      {"+0", 0s},
      {"0s", 0s},
      {"1.5h", 90min},
      {".5s", 500ms},
      {"1.s", 1s},
      {"3us", 3us},
      {"3\xC2\xB5s", 3us},
      {"3\xCE\xBCs", 3us},
      {"7ns", 7ns},
      {"2h0m1s", 2h + 1s},
      {"9223372036854775807ns", nanoseconds::max()},
      {"2540400h10m10s", 2540400h + 10min + 10s},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ParseGoDuration(text), expected) << text;
}

TEST(GoDuration, RefusesTheRest) {
  for (const std::string& text :
       {std::string(), std::string("soon"), std::string("5"), std::string("5 m"), std::string(" 5m"),
        std::string("m"), std::string("-"), std::string("--1s"), std::string("."), std::string(".s"),
        std::string("1d"), std::string("5m3"), std::string("9223372036854775808ns"), std::string("99999999h"),
        std::string("1e3s"), std::string("5\0m", 3), std::string(100'000, '9') + "s"}) {
    EXPECT_EQ(ParseGoDuration(text), std::nullopt) << text.substr(0, 40);
  }
}

TEST(DurationOrSeconds, TakesBareNumbersAsSeconds) {
  EXPECT_EQ(ParseDurationOrSeconds("300"), 300s);
  EXPECT_EQ(ParseDurationOrSeconds("-1"), -1s);
  EXPECT_EQ(ParseDurationOrSeconds("5m"), 5min);
  EXPECT_EQ(ParseDurationOrSeconds("99999999999999"), std::nullopt);
  EXPECT_EQ(ParseDurationOrSeconds("x"), std::nullopt);
}

TEST(GoBool, ReadsWhatGoReads) {
  for (const char* text : {"1", "t", "T", "TRUE", "true", "True"}) EXPECT_EQ(ParseGoBool(text), true);
  for (const char* text : {"0", "f", "F", "FALSE", "false", "False"}) EXPECT_EQ(ParseGoBool(text), false);
  for (const char* text : {"", "yes", "tRUE", " true", "2"}) EXPECT_EQ(ParseGoBool(text), std::nullopt);
}

}  // namespace
}  // namespace quire::api
