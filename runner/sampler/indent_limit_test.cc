#include "runner/sampler/indent_limit.h"

#include <gtest/gtest.h>

namespace quire::runner::sampler {
namespace {

std::string Limited(int32_t min, const std::string& text, size_t piece) {
  IndentLimit limit(min);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) {
    std::string next = text.substr(at, piece);
    const bool ends = limit.Cut(next);
    out += next;
    if (ends) return out + "|";
  }
  return out;
}

TEST(IndentLimit, EndsBeforeALineThatIsIndentedTooLittle) {
  for (size_t piece = 1; piece < 9; ++piece) {
    EXPECT_EQ(Limited(2, "a;\n  b;\n\tc;\n  }\n", piece), "a;\n  b;\n\t|");
    EXPECT_EQ(Limited(2, "a;\n  b;\n   c;\n}\n", piece), "a;\n  b;\n   c;\n|");
    EXPECT_EQ(Limited(2, "a\n\n  b", piece), "a\n|") << "an empty line ends a block too";
    EXPECT_EQ(Limited(0, "a\nb\n\nc", piece), "a\nb\n\nc");
    EXPECT_EQ(Limited(4, "    a", piece), "    a");
  }
}

}  // namespace
}  // namespace quire::runner::sampler
