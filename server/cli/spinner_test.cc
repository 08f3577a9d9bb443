#include "server/cli/spinner.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(PrefillText, HasRateAndTimeLeft) {
  EXPECT_EQ(PrefillText({.total = 36'013, .cached = 0, .processed = 12'000, .elapsed_ms = 60'000}),
            "prefilling 12,000 of 36,013 tokens, 200 tokens/s, 2 min 1 s left");
  EXPECT_EQ(PrefillText({.total = 2'000, .cached = 1'000, .processed = 1'500, .elapsed_ms = 100'000}),
            "prefilling 1,500 of 2,000 tokens, 5.0 tokens/s, 1 min 40 s left");
  EXPECT_EQ(PrefillText({.total = 1'000'000, .cached = 0, .processed = 1'000, .elapsed_ms = 10'000}),
            "prefilling 1,000 of 1,000,000 tokens, 100 tokens/s, 2 h 46 min left");
  EXPECT_EQ(PrefillText({.total = 999, .cached = 0, .processed = 900, .elapsed_ms = 9'000}),
            "prefilling 900 of 999 tokens, 100 tokens/s, 1 s left");
}

TEST(PrefillText, HasNoneBeforeAnythingIsComputed) {
  EXPECT_EQ(PrefillText({.total = 36'013, .cached = 1'013, .processed = 1'013, .elapsed_ms = 5}),
            "prefilling 1,013 of 36,013 tokens");
  EXPECT_EQ(PrefillText({.total = 10, .cached = 0, .processed = 5, .elapsed_ms = 0}),
            "prefilling 5 of 10 tokens");
}

TEST(PrefillText, FitsATerminal) {
  const std::string text =
      PrefillText({.total = 9'999'999, .cached = 0, .processed = 1'234'567, .elapsed_ms = 36'000'000});
  EXPECT_LE(text.size(), 77U) << text;
}

}  // namespace
}  // namespace quire::cli
