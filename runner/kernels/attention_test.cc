#include "runner/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/recorded_bits.h"

namespace quire::runner::kernels {
namespace {

using cache::ElementType;
using cache::Position;
using test::ForEachInstructionSet;
using test::Random;

// Pages of some sequences, as a cache would show them to one step. Memory that no token was written to holds
// NaN.
class FakePages final : public cache::StepView {
 public:
  FakePages(const cache::Layout& layout, size_t sequences) : layout_(layout), sequences_(sequences) {}

  void NextStep(size_t i, Position offset, int32_t new_tokens) {
    Sequence& sequence = sequences_[i];
    sequence.offset = offset;
    sequence.new_tokens = new_tokens;
    const Position end = offset + new_tokens, page_tokens = layout_.page_tokens;
    while (static_cast<Position>(sequence.memory.size()) * page_tokens < end) {
      sequence.memory.emplace_back(cache::PageBytes(layout_, 0), std::byte{0xFF});
    }
    sequence.views.clear();
    for (Position p = cache::OldestVisible(layout_.groups[0], offset); p < end;
         p += page_tokens - p % page_tokens) {
      const Position page_end = std::min(end, p - p % page_tokens + page_tokens);
      sequence.views.push_back({.base = sequence.memory[static_cast<size_t>(p / page_tokens)].data(),
                                .first = p,
                                .tokens = static_cast<int32_t>(page_end - p)});
    }
  }

  size_t sequences() const override { return sequences_.size(); }
  Position offset(size_t i) const override { return sequences_[i].offset; }
  int32_t new_tokens(size_t i) const override { return sequences_[i].new_tokens; }
  std::span<const cache::PageView> Pages(size_t i, size_t) const override { return sequences_[i].views; }
  std::byte* Slot(size_t) const override { return nullptr; }

 private:
  struct Sequence {
    Position offset = 0;
    int32_t new_tokens = 0;
    std::vector<std::vector<std::byte>> memory;
    std::vector<cache::PageView> views;
  };
  cache::Layout layout_;
  std::vector<Sequence> sequences_;
};

struct Case {
  int32_t heads, kv_heads, dim, page_tokens, window;
  ElementType element;
  float soft_cap = 0;
  bool sinks = false;
  int32_t latent = 0;

  int32_t value_dim() const { return latent > 0 ? latent : dim; }
};

std::string Name(const Case& c) {
  return testing::PrintToString(std::vector<int>{c.heads, c.kv_heads, c.dim, c.page_tokens, c.window,
                                                 static_cast<int>(c.element), static_cast<int>(c.soft_cap),
                                                 static_cast<int>(c.sinks), c.latent});
}

cache::Layout LayoutOf(const Case& c) {
  return {.page_tokens = c.page_tokens,
          .groups = {{.layers = 2,
                      .kv_heads = c.kv_heads,
                      .head_dim = c.dim,
                      .element = c.element,
                      .window = c.window,
                      .latent = c.latent}},
          .recurrent = {}};
}

// Random Q, K, V of some sequences, [tokens, heads or kv_heads, dim] each. No V with latent attention.
struct Inputs {
  Inputs(const Case& c, std::vector<int32_t> lengths_of) : lengths(std::move(lengths_of)) {
    Random random(99);
    for (const int32_t length : lengths) {
      q.push_back(random.Floats(static_cast<size_t>(length * c.heads * c.dim)));
      k.push_back(random.Floats(static_cast<size_t>(length * c.kv_heads * c.dim)));
      v.push_back(c.latent > 0 ? std::vector<float>()
                               : random.Floats(static_cast<size_t>(length * c.kv_heads * c.dim)));
    }
  }
  std::vector<int32_t> lengths;
  std::vector<std::vector<float>> q, k, v;
};

constexpr float kScale = 1.7F;

std::vector<float> SinksOf(const Case& c) {
  if (!c.sinks) return {};
  std::vector<float> sinks = Random(12).Floats(static_cast<size_t>(c.heads));
  sinks[0] = 9;  // above most scores
  return sinks;
}

void AppendRows(const std::vector<float>& from, int32_t begin, int32_t end, int32_t row_size,
                std::vector<float>* to) {
  to->insert(to->end(), from.begin() + ptrdiff_t{begin} * row_size, from.begin() + ptrdiff_t{end} * row_size);
}

// All sequences in steps of `chunk` tokens each; the layer tested is the second of its group.
std::vector<std::vector<float>> Attend(ThreadPool& pool, const Case& c, const Inputs& in, int32_t chunk) {
  const cache::Layout layout = LayoutOf(c);
  FakePages pages(layout, in.lengths.size());
  std::vector<std::vector<float>> result(in.lengths.size());
  AttentionPlan plan;
  for (int32_t from = 0; from < *std::max_element(in.lengths.begin(), in.lengths.end()); from += chunk) {
    std::vector<float> q, k, v;
    std::vector<int32_t> row_begin = {0};
    for (size_t s = 0; s < in.lengths.size(); ++s) {
      const int32_t begin = std::min(from, in.lengths[s]), end = std::min(from + chunk, in.lengths[s]);
      pages.NextStep(s, begin, end - begin);
      AppendRows(in.q[s], begin, end, c.heads * c.dim, &q);
      AppendRows(in.k[s], begin, end, c.kv_heads * c.dim, &k);
      if (c.latent == 0) AppendRows(in.v[s], begin, end, c.kv_heads * c.dim, &v);
      row_begin.push_back(row_begin.back() + end - begin);
    }
    const AttentionLayer at{
        .layout = &layout, .group = 0, .layer = 1, .step = &pages, .row_begin = row_begin};
    std::vector<float> out(static_cast<size_t>(row_begin.back() * c.heads * c.value_dim()));
    const std::vector<float> sinks = SinksOf(c);
    StoreKeyValue(pool, at, k, v);
    plan.Prepare(row_begin, c.heads, layout.groups[0], pool.threads());
    Attention(pool, at, plan, {.scale = kScale, .soft_cap = c.soft_cap, .sinks = sinks}, q, out);
    for (size_t s = 0; s < in.lengths.size(); ++s) {
      AppendRows(out, row_begin[s], row_begin[s + 1], c.heads * c.value_dim(), &result[s]);
    }
  }
  return result;
}

// Number i of a head of `dim` as a page holds it.
double Kept(ElementType type, const float* head, int32_t i, int32_t dim) {
  if (type == ElementType::kI16) {
    float largest = 0;
    for (int32_t j = 0; j < dim; ++j) largest = std::max(largest, std::abs(head[j]));
    return largest / 4095 * std::nearbyint(head[i] * (4095 / largest));
  }
  if (type != ElementType::kQ8_0) {
    return test::Rounded(head[i], type == ElementType::kF32 ? 24 : type == ElementType::kF16 ? 11 : 8);
  }
  const float* const block = head + i / kQ8Block * kQ8Block;
  float largest = 0;
  for (int32_t j = 0; j < kQ8Block; ++j) largest = std::max(largest, std::abs(block[j]));
  const float scale = test::Rounded(largest / 127, 11);
  return scale * std::clamp(std::nearbyint(head[i] / scale), -127.0F, 127.0F);
}

// The inputs with K and V as the pages hold them.
Inputs AsKept(const Case& c, const Inputs& in) {
  Inputs kept = in;
  for (auto* const all : {&kept.k, &kept.v}) {
    for (std::vector<float>& numbers : *all) {
      const std::vector<float> from = numbers;
      for (size_t i = 0; i < numbers.size(); ++i) {
        const size_t in_head = i % static_cast<size_t>(c.dim);
        numbers[i] =
            static_cast<float>(Kept(c.element, &from[i - in_head], static_cast<int32_t>(in_head), c.dim));
      }
    }
  }
  return kept;
}

// In double, from K and V as the pages hold them.
double Expected(const Case& c, const Inputs& in, size_t s, int32_t p, int32_t head, int32_t d) {
  const auto at = [&](const std::vector<float>& x, int32_t row, int32_t i) {
    const int32_t kv_head = head / (c.heads / c.kv_heads);
    return static_cast<double>(x[static_cast<size_t>((row * c.kv_heads + kv_head) * c.dim + i)]);
  };
  const auto value = [&](int32_t key) {
    return c.latent > 0 ? at(in.k[s], key, c.dim - c.latent + d) : at(in.v[s], key, d);
  };
  const int32_t first = c.window == 0 ? 0 : std::max(0, p - c.window + 1);
  const std::vector<float> sinks = SinksOf(c);
  double weight = c.sinks ? std::exp(static_cast<double>(sinks[static_cast<size_t>(head)])) : 0, sum = 0;
  for (int32_t key = first; key <= p; ++key) {
    double score = 0;
    for (int32_t i = 0; i < c.dim; ++i) {
      score += in.q[s][static_cast<size_t>((p * c.heads + head) * c.dim + i)] * at(in.k[s], key, i);
    }
    score *= kScale;
    if (c.soft_cap > 0) score = c.soft_cap * std::tanh(score / c.soft_cap);
    const double e = std::exp(score);
    weight += e;
    sum += e * value(key);
  }
  return sum / weight;
}

// What attention may differ from the formula: kI16 and kQ8_0 round queries and weights too, to 12 and 13 or 11 bits.
double Tolerance(const Case& c) {
  const bool in_integers =
      c.element == ElementType::kI16 || (c.element == ElementType::kQ8_0 && c.latent == 0);
  return in_integers ? 5e-3 : 2e-5;
}

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

// Several segments of sums, the first of them without keys in the window's case.
TEST(Attention, LongSequencesAreBitIdenticalInChunksAndOnPagesOfAnySize) {
  ThreadPool one(1), three(3), eight(8);
  for (const auto element : {ElementType::kF16, ElementType::kQ8_0, ElementType::kI16}) {
    for (const int32_t window : {0, 1100}) {
      const Case c = {2, 1, 32, 32, window, element};
      const Inputs in(c, {2300, 40}), kept = AsKept(c, in);
      const auto whole = Attend(three, c, in, 2300);
      for (const int32_t p : {700, 1023, 1024, 2050, 2299}) {
        for (int32_t i = 0; i < 2 * c.dim; i += 5) {
          ASSERT_NEAR(whole[0][static_cast<size_t>(p * 2 * c.dim + i)],
                      Expected(c, kept, 0, p, i / c.dim, i % c.dim), Tolerance(c))
              << "position " << p << " at " << i;
        }
      }
      for (const int32_t chunk : {100, 1025}) ASSERT_EQ(whole, Attend(one, c, in, chunk)) << chunk;
      // A step's few rows are then cut along their keys.
      for (ThreadPool* const pool : {&three, &eight}) ASSERT_EQ(whole, Attend(*pool, c, in, 23));
      for (const int32_t page_tokens : {8, 96}) {
        Case other = c;
        other.page_tokens = page_tokens;
        ASSERT_EQ(whole, Attend(three, other, in, 333)) << "pages of " << page_tokens;
      }
    }
  }
}

TEST(Attention, ConvertedElementsRoundTrip) {
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

TEST(Attention, KeysComeBackFromWhereTheyLie) {
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
TEST(Attention, LatentRowsTakeTheirOwnBytesOnly) {
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

TEST(Attention, WhatFloat16CannotHoldStaysFinite) {
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
