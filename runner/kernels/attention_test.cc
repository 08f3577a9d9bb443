#include "runner/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runner/kernels/int8_gemm.h"
#include "runner/kernels/testing/attention_case.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/recorded_bits.h"

namespace quire::runner::kernels {
namespace {

using cache::ElementType;
using test::AsKept;
using test::Attend;
using test::Case;
using test::Expected;
using test::ForEachInstructionSet;
using test::Image;
using test::Inputs;
using test::Name;
using test::SeenEndOf;
using test::Tolerance;

const Case kCases[] = {
    {4, 4, 16, 32, 0, ElementType::kF32},
    {4, 2, 8, 4, 0, ElementType::kF32},
    {6, 2, 64, 32, 0, ElementType::kF32},
    {8, 1, 20, 96, 0, ElementType::kF32},
    {2, 1, 33, 160, 0, ElementType::kF32},
    {4, 2, 16, 8, 5, ElementType::kF32},
    {4, 2, 16, 32, 40, ElementType::kF32},
    {4, 2, 16, 4, 1, ElementType::kF32},
    {4, 2, 16, 8, 20, ElementType::kF32},
    {34, 1, 12, 16, 0, ElementType::kF32},
    {4, 2, 32, 32, 0, ElementType::kF16},
    {4, 2, 22, 16, 7, ElementType::kBF16},
    {4, 2, 16, 8, 5, ElementType::kF32, 2},
    {4, 4, 32, 64, 0, ElementType::kF32, 1},
    {4, 2, 32, 32, 0, ElementType::kQ8_0},
    {8, 1, 96, 16, 7, ElementType::kQ8_0},
    {6, 2, 64, 32, 0, ElementType::kQ8_0},
    {14, 1, 256, 16, 0, ElementType::kQ8_0},
    {4, 2, 32, 6, 5, ElementType::kQ8_0},
    {4, 2, 64, 2, 40, ElementType::kQ8_0},
    {4, 2, 32, 8, 1, ElementType::kQ8_0},
    {4, 4, 96, 96, 21, ElementType::kQ8_0, 1},
    {8, 2, 32, 12, 7, ElementType::kQ8_0, 0, true},
    {2, 1, 33, 160, 0, ElementType::kF16},
    {4, 2, 32, 32, 0, ElementType::kI16},
    {6, 2, 64, 32, 0, ElementType::kI16},
    {2, 1, 22, 160, 0, ElementType::kI16},
    {14, 1, 256, 16, 0, ElementType::kI16},
    {4, 2, 16, 6, 5, ElementType::kI16},
    {4, 2, 40, 2, 40, ElementType::kI16},
    {4, 2, 16, 8, 1, ElementType::kI16},
    {4, 4, 48, 96, 21, ElementType::kI16, 1},
    {.heads = 8,
     .kv_heads = 2,
     .dim = 16,
     .page_tokens = 12,
     .window = 7,
     .element = ElementType::kI16,
     .sinks = true},
    {.heads = 4,
     .kv_heads = 2,
     .dim = 16,
     .page_tokens = 8,
     .window = 5,
     .element = ElementType::kF32,
     .sinks = true},
    {.heads = 6,
     .kv_heads = 2,
     .dim = 64,
     .page_tokens = 32,
     .window = 0,
     .element = ElementType::kF16,
     .sinks = true},
    {.heads = 6,
     .kv_heads = 2,
     .dim = 40,
     .page_tokens = 12,
     .window = 0,
     .element = ElementType::kF32,
     .slopes = true},
    {.heads = 4,
     .kv_heads = 1,
     .dim = 32,
     .page_tokens = 16,
     .window = 0,
     .element = ElementType::kI16,
     .soft_cap = 2,
     .slopes = true},
    {.heads = 3,
     .kv_heads = 3,
     .dim = 64,
     .page_tokens = 32,
     .window = 40,
     .element = ElementType::kQ8_0,
     .slopes = true},
    {.heads = 20,
     .kv_heads = 1,
     .dim = 48,
     .page_tokens = 32,
     .window = 0,
     .element = ElementType::kF32,
     .latent = 32},
    {.heads = 3,
     .kv_heads = 1,
     .dim = 21,
     .page_tokens = 12,
     .window = 0,
     .element = ElementType::kBF16,
     .latent = 15},
    {.heads = 16,
     .kv_heads = 1,
     .dim = 576,
     .page_tokens = 32,
     .window = 0,
     .element = ElementType::kF16,
     .latent = 512},
    {.heads = 5,
     .kv_heads = 1,
     .dim = 96,
     .page_tokens = 96,
     .window = 9,
     .element = ElementType::kQ8_0,
     .latent = 64},
};

TEST(Attention, AgreesWithTheFormulaHoweverItIsCut) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(Name(c));
      const Inputs in(c, {70, 1, 133}), kept = AsKept(c, in);
      const auto whole = Attend(pool, c, in, 133);
      for (size_t s = 0; s < in.lengths.size(); ++s) {
        for (int32_t p = 0; p < in.lengths[s]; p += 1 + p / 8) {
          const int32_t width = c.heads * c.value_dim();
          for (int32_t i = 0; i<width; i += c.dim> 512 ? 500 : 7) {
            const float actual = whole[s][static_cast<size_t>(p * width + i)];
            // Truncation instead of rounding would move K and V by up to a whole unit.
            ASSERT_NEAR(actual, Expected(c, kept, s, p, i / c.value_dim(), i % c.value_dim()), Tolerance(c))
                << "sequence " << s << " position " << p << " at " << i;
          }
        }
      }
      for (const int32_t chunk : {1, 2, 5, 32, 64, 100}) {
        ASSERT_EQ(whole, Attend(pool, c, in, chunk)) << "in chunks of " << chunk;
      }
    }
  });
}

// For int16, the instruction that multiplies and adds pairs gives what two give.
TEST(Attention, BitsDoNotDependOnFusedPairs) {
  ThreadPool pool(2);
  ForEachInstructionSet([&] {
    for (const Case& c : kCases) {
      const Inputs in(c, {70, 1, 133});
      const auto fused = Attend(pool, c, in, 40);
      LimitPanelTarget(PanelTarget::kAvx2);
      const auto apart = Attend(pool, c, in, 40);
      LimitPanelTarget(kNoPanelLimit);
      ASSERT_EQ(fused, apart) << Name(c);
    }
  });
}

// Several segments of sums, the first of them without keys in the window's case.
TEST(Attention, LongSequencesAreBitIdenticalInChunksAndOnPagesOfAnySize) {
  ThreadPool one(1), two(2), seven(7), sixteen(16), many(64);
  std::vector<Case> cases = {{2, 1, 32, 32, 0, ElementType::kI16, 3},
                             {2, 1, 32, 32, 0, ElementType::kI16, 0, true},
                             {2, 1, 32, 32, 0, ElementType::kF16, 0, false, 0, true},
                             {4, 1, 48, 32, 0, ElementType::kBF16, 0, false, 32}};
  for (const auto element : {ElementType::kF16, ElementType::kQ8_0, ElementType::kI16}) {
    for (const int32_t window : {0, 1100}) cases.push_back({2, 1, 32, 32, window, element});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(Name(c));
    const Inputs in(c, {2300, 40}), kept = AsKept(c, in);
    const auto whole = Attend(two, c, in, 2300);
    const int32_t width = c.heads * c.value_dim();
    for (const int32_t p : {700, 1023, 1024, 2050, 2299}) {
      for (int32_t i = 0; i < width; i += 5) {
        ASSERT_NEAR(whole[0][static_cast<size_t>(p * width + i)],
                    Expected(c, kept, 0, p, i / c.value_dim(), i % c.value_dim()), Tolerance(c))
            << "position " << p << " at " << i;
      }
    }
    for (const int32_t chunk : {100, 1025}) ASSERT_EQ(whole, Attend(one, c, in, chunk)) << chunk;
    // A step's few rows are then cut along their keys.
    for (ThreadPool* const pool : {&two, &seven, &sixteen, &many}) ASSERT_EQ(whole, Attend(*pool, c, in, 23));
    ASSERT_EQ(whole, Attend(seven, c, in, 1));
    for (const int32_t page_tokens : {8, 96}) {
      Case other = c;
      other.page_tokens = page_tokens;
      ASSERT_EQ(whole, Attend(two, other, in, 333)) << "pages of " << page_tokens;
    }
  }
}

// An image longer than some windows, one at the beginning, and one that begins where another ends.
TEST(Attention, TokensOfAnImageSeeEachOther) {
  ThreadPool pool(3);
  const Image images[] = {{0, 3}, {20, 52}, {52, 60}, {100, 133}};
  ForEachInstructionSet([&] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(Name(c));
      const Inputs in(c, {70, 1, 133}), kept = AsKept(c, in);
      const auto whole = Attend(pool, c, in, 133, images);
      for (size_t s = 0; s < in.lengths.size(); ++s) {
        for (int32_t p = 0; p < in.lengths[s]; p += 1 + p / 8) {
          const int32_t width = c.heads * c.value_dim(), end = SeenEndOf(images, p, in.lengths[s]);
          for (int32_t i = 0; i<width; i += c.dim> 512 ? 500 : 7) {
            ASSERT_NEAR(whole[s][static_cast<size_t>(p * width + i)],
                        Expected(c, kept, s, p, i / c.value_dim(), i % c.value_dim(), end), Tolerance(c))
                << "sequence " << s << " position " << p << " at " << i;
          }
        }
      }
      for (const int32_t chunk : {1, 5, 32, 64}) {
        ASSERT_EQ(whole, Attend(pool, c, in, chunk, images)) << "in chunks of " << chunk;
      }
    }
  });
}

// Where an image's keys reach into the next segment, and few rows are cut along their keys.
TEST(Attention, AnImageAcrossSegmentsIsBitIdenticalHoweverItIsCut) {
  ThreadPool one(1), seven(7), many(64);
  const Image images[] = {{1000, 1040}, {2040, 2060}};
  for (const auto element : {ElementType::kF32, ElementType::kQ8_0, ElementType::kI16}) {
    for (const int32_t window : {0, 1100}) {
      const Case c = {2, 1, 32, 32, window, element};
      SCOPED_TRACE(Name(c));
      const Inputs in(c, {2300, 40}), kept = AsKept(c, in);
      const auto whole = Attend(one, c, in, 2300, images);
      for (const int32_t p : {999, 1000, 1023, 1024, 1039, 1040, 2047, 2059, 2060}) {
        for (int32_t i = 0; i < 64; i += 5) {
          ASSERT_NEAR(whole[0][static_cast<size_t>(p * 64 + i)],
                      Expected(c, kept, 0, p, i / 32, i % 32, SeenEndOf(images, p, 2300)), Tolerance(c))
              << "position " << p << " at " << i;
        }
      }
      for (const int32_t chunk : {1, 23, 1025}) {
        for (ThreadPool* const pool : {&one, &seven, &many}) {
          ASSERT_EQ(whole, Attend(*pool, c, in, chunk, images)) << chunk;
        }
      }
    }
  }
}

TEST(Attention, ASequencesBitsDependOnThatSequenceOnly) {
  ThreadPool one(1), three(3);
  ForEachInstructionSet([&] {
    const Case& c = kCases[2];
    const Inputs all(c, {70, 9, 40});
    const auto together = Attend(three, c, all, 40);
    for (size_t s = 0; s < all.lengths.size(); ++s) {
      Inputs alone(c, {});
      alone.lengths = {all.lengths[s]};
      alone.q = {all.q[s]};
      alone.k = {all.k[s]};
      alone.v = {all.v[s]};
      ASSERT_EQ(together[s], Attend(one, c, alone, 40)[0]);
    }
  });
}

TEST(Attention, ScoresFarApartStayFinite) {
  ThreadPool pool(1);
  const Case& c = kCases[0];
  Inputs in(c, {40});
  for (float& q : in.q[0]) q *= 1e4F;
  for (float& k : in.k[0]) k *= 1e4F;
  const auto out = Attend(pool, c, in, 40);
  for (const float value : out[0]) ASSERT_TRUE(std::isfinite(value));
}

// Bits of integer attention are those of its own sums, wherever they are computed.
TEST(RecordedBits, IntegerAttention) {
  ThreadPool pool(1);
  test::ExpectBits("e53a1b85b5d13da6", [&](test::BitHash& hash) {
    for (const Case& c :
         {Case{4, 2, 64, 16, 0, ElementType::kI16}, Case{2, 1, 22, 24, 9, ElementType::kI16, 5},
          Case{6, 2, 256, 64, 0, ElementType::kI16, 0, true}}) {
      for (const std::vector<float>& y : Attend(pool, c, Inputs(c, {3, 77}), 77)) hash.Add(y);
    }
  });
}

// What a model computes wrong must show, also where it is rounded to integers.
TEST(Attention, ValuesThatAreNotFiniteAreNotHidden) {
  ThreadPool pool(1);
  const Case c = {2, 1, 32, 32, 0, ElementType::kI16};
  ForEachInstructionSet([&] {
    for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Inputs in(c, {70});
      in.v[0][static_cast<size_t>(40 * c.dim + 3)] = wrong;
      const auto out = Attend(pool, c, in, 70)[0];
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(std::isfinite(out[i]), i < static_cast<size_t>(40 * c.heads * c.dim)) << i;
      }
    }
  });
}

// Every KV cache type in floats, heads of no whole vectors, a soft cap, sinks, latent attention.
TEST(RecordedBits, Attention) {
  ThreadPool pool(1);
  test::ExpectBits("50c1c06004e97806", [&](test::BitHash& hash) {
    for (const Case& c :
         {Case{4, 2, 32, 16, 0, ElementType::kQ8_0}, Case{4, 2, 40, 16, 0, ElementType::kF16},
          Case{2, 1, 7, 24, 9, ElementType::kF32, 5}, Case{4, 4, 20, 64, 0, ElementType::kBF16, 0, true},
          Case{5, 1, 48, 16, 0, ElementType::kF16, 0, false, 32}}) {
      for (const std::vector<float>& y : Attend(pool, c, Inputs(c, {3, 77}), 77)) hash.Add(y);
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
