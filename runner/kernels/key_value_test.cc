#include "runner/kernels/key_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "runner/kernels/testing/attention_case.h"
#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels {
namespace {

using cache::ElementType;
using test::ForEachInstructionSet;
using test::Kept;
using test::LayoutOf;
using test::Random;

TEST(KeyValue, ConvertedElementsRoundTrip) {
  ForEachInstructionSet([&] {
    Random random(5);
    std::vector<float> from = random.Floats(160);
    std::fill_n(from.begin() + 32, 32, 0.0F);
    for (size_t i = 64; i < 96; ++i) from[i] *= 1e-6F;  // scales below what float16 has at full precision
    for (const auto type : {ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kQ8_0}) {
      std::vector<std::byte> kept(cache::ElementBytes(type, 160));
      std::vector<float> back(160);
      ConvertFromFloat32(type, from, kept.data());
      ConvertToFloat32(type, kept.data(), back);
      for (size_t i = 0; i < from.size(); ++i) {
        if (i / 32 == 2) continue;
        ASSERT_EQ(back[i], i / 32 == 1 ? 0.0F : Kept(type, from.data(), static_cast<int32_t>(i), 160))
            << static_cast<int>(type) << " at " << i;
      }
      for (size_t i = 64; i < 96; ++i) ASSERT_NEAR(back[i], from[i], 1e-6);
    }
  });
}

TEST(KeyValue, KeysComeBackFromWhereTheyLie) {
  constexpr int32_t kDim = 64, kTokens = 5;
  for (const auto type :
       {ElementType::kF32, ElementType::kF16, ElementType::kBF16, ElementType::kQ8_0, ElementType::kI16}) {
    const cache::Layout layout = LayoutOf({1, 1, kDim, 12, 0, type});
    const std::vector<float> keys = Random(3).Floats(kTokens * kDim);
    std::vector<std::byte> head(cache::ValueOffset(layout, 0, 0, 0)), values(head.size());
    WriteKeys(layout, 0, keys, head.data(), 4, kTokens);
    for (int32_t t = 0; t < kTokens; ++t) {
      const std::span one = std::span(keys).subspan(static_cast<size_t>(t * kDim), kDim);
      WriteValue(layout, 0, one, values.data(), 5 + t);
    }
    for (int32_t t = 0; t < kTokens; ++t) {
      std::vector<float> back(kDim), value(kDim);
      ReadKeys(layout, 0, head.data(), 4 + t, 1, back);
      ReadValue(layout, 0, values.data(), 5 + t, value);
      ASSERT_EQ(back, value);
      const float* const key = &keys[static_cast<size_t>(t * kDim)];
      for (int32_t i = 0; i < kDim; ++i) ASSERT_EQ(back[static_cast<size_t>(i)], Kept(type, key, i, kDim));
    }
  }
}

// One row per token, and no more.
TEST(KeyValue, LatentRowsTakeTheirOwnBytesOnly) {
  const cache::Layout layout = LayoutOf({.heads = 1,
                                         .kv_heads = 1,
                                         .dim = 576,
                                         .page_tokens = 32,
                                         .window = 0,
                                         .element = ElementType::kF16,
                                         .latent = 512});
  EXPECT_EQ(cache::PageBytes(layout, 0), 2U * 32 * 576 * 2) << "layers, tokens, latent and rotary, bytes";
  EXPECT_EQ(cache::ValueOffset(layout, 0, 1, 0) - cache::KeyOffset(layout, 0, 1, 0), 64U * 2);
  const std::vector<float> keys = Random(3).Floats(3 * 576);
  std::vector<std::byte> page(cache::PageBytes(layout, 0));
  std::vector<float> back(keys.size());
  WriteKeys(layout, 0, keys, page.data(), 4, 3);
  ReadKeys(layout, 0, page.data(), 4, 3, back);
  for (size_t i = 0; i < keys.size(); ++i)
    ASSERT_EQ(back[i], Kept(ElementType::kF16, keys.data(), static_cast<int32_t>(i), 576));
}

TEST(KeyValue, WhatFloat16CannotHoldStaysFinite) {
  ForEachInstructionSet([&] {
    const std::vector<float> from(32, -1e9F);
    for (const auto type : {ElementType::kF16, ElementType::kQ8_0}) {
      std::vector<std::byte> kept(cache::ElementBytes(type, 32));
      std::vector<float> back(32);
      ConvertFromFloat32(type, from, kept.data());
      ConvertToFloat32(type, kept.data(), back);
      for (const float value : back) ASSERT_LE(value, -65504);
      for (const float value : back) ASSERT_TRUE(std::isfinite(value));
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
