#include "server/cli/table.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(FormatTable, AlignsColumnsFourSpacesApart) {
  EXPECT_EQ(FormatTable({{"NAME", "ID", "SIZE"}, {"quire-demo:latest", "ab", "11 MB"}}),
            "NAME                 ID    SIZE\n"
            "quire-demo:latest    ab    11 MB\n");
  EXPECT_EQ(FormatTable({{"NAME", "ID"}}), "NAME    ID\n");
}

TEST(FormatSize, UsesDecimalUnits) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(999), "999 B");
  EXPECT_EQ(FormatSize(5'836'320), "5.8 MB");
  EXPECT_EQ(FormatSize(10'843'680), "11 MB");
  EXPECT_EQ(FormatSize(1'900'000'000), "1.9 GB");
}

TEST(FormatAge, SpeaksOfPastAndFuture) {
  using std::chrono::seconds;
  EXPECT_EQ(FormatAge(seconds(3 * 86400 + 5)), "3 days ago");
  EXPECT_EQ(FormatAge(seconds(-4 * 60 - 59)), "4 minutes from now");
  EXPECT_EQ(FormatAge(seconds(1)), "1 second ago");
  EXPECT_EQ(FormatAge(seconds(0)), "Less than a second ago");
}

}  // namespace
}  // namespace quire::cli
