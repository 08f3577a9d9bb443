#include "server/tier/write_rate.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

// Ten simulated seconds with a disk that takes 1 ms for a piece, or 300 ms: never more than the rate.
TEST(WriteRates, AreKeptInEverySecond) {
  for (const std::chrono::milliseconds write :
       {std::chrono::milliseconds(1), std::chrono::milliseconds(300)}) {
    const WriteRate rate(64e6);
    const WriteRate::Time begin{};
    WriteRate::Time now = begin;
    uint64_t written = 0;
    while (now - begin < std::chrono::seconds(10)) {
      constexpr uint64_t kPiece = uint64_t{4} << 20;
      now += write;
      written += kPiece;
      now = rate.NextAfter(kPiece, now);
      const double passed = std::chrono::duration<double>(now - begin).count();
      EXPECT_LE(static_cast<double>(written), 64e6 * passed * 1.001);
    }
    EXPECT_GT(written, 50'000'000u);
  }
}

}  // namespace
}  // namespace quire::server
