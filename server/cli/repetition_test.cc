#include "server/cli/repetition.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace quire::cli {
namespace {

// Bytes of pieces until it is said that they repeat; 0: it never is.
size_t StoppedAfter(Repetition& repetition, std::string_view piece, size_t times) {
  for (size_t i = 1; i <= times; ++i) {
    if (repetition.Add(piece)) return i * piece.size();
  }
  return 0;
}

TEST(Repetition, OnePieceOverAndOverIsSeen) {
  for (const std::string& piece : {std::string("3<"), std::string("\n"),
                                   std::string("and so on, and so on, "), std::string(95, 'x') + "y"}) {
    Repetition repetition;
    repetition.Add("An answer begins. ");
    const size_t stopped = StoppedAfter(repetition, piece, 10000);
    EXPECT_GE(stopped, Repetition::kBytes);
    EXPECT_LE(stopped, Repetition::kBytes + 256);
  }
}

TEST(Repetition, WhatGoesOnIsNone) {
  Repetition repetition;
  for (int i = 0; i < 2000; ++i) ASSERT_FALSE(repetition.Add("line " + std::to_string(i) + "\n"));
  EXPECT_EQ(StoppedAfter(repetition, std::string(120, 'x') + "y", 100), 0u);  // a long piece
  for (int i = 0; i < 100; ++i) {                                             // short runs
    ASSERT_EQ(StoppedAfter(repetition, "-", 1000), 0u);
    ASSERT_FALSE(repetition.Add("\nname\n"));
  }
}

}  // namespace
}  // namespace quire::cli
