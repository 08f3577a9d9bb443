// For tests of attention: queries, keys and values of some sequences, their pages, and the truth in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "runner/kernels/attention.h"
#include "runner/kernels/testing/instruction_sets.h"

namespace quire::runner::kernels::test {

using cache::ElementType;
using cache::Position;

// Pages of some sequences, as a cache would show them to one step. Memory that no token was written to holds
// NaN.
class FakePages final : public cache::StepView {
 public:
  FakePages(const cache::Layout& layout, size_t sequences) : layout_(layout), sequences_(sequences) {}

  void NextStep(size_t i, Position offset, int32_t new_tokens) {
    Sequence& sequence = sequences_[i];
    sequence.offset = offset;
    sequence.new_tokens = new_tokens;
    sequence.groups.resize(layout_.groups.size());
    for (size_t group = 0; group < layout_.groups.size(); ++group) Show(group, sequence);
  }

  size_t sequences() const override { return sequences_.size(); }
  Position offset(size_t i) const override { return sequences_[i].offset; }
  int32_t new_tokens(size_t i) const override { return sequences_[i].new_tokens; }
  std::span<const cache::PageView> Pages(size_t i, size_t group) const override {
    return sequences_[i].groups[group].views;
  }
  std::byte* Slot(size_t) const override { return nullptr; }

 private:
  struct Group {
    std::vector<std::vector<std::byte>> memory;
    std::vector<cache::PageView> views;
  };
  struct Sequence {
    Position offset = 0;
    int32_t new_tokens = 0;
    std::vector<Group> groups;
  };

  void Show(size_t index, Sequence& sequence) const {
    Group& group = sequence.groups[index];
    const Position end = sequence.offset + sequence.new_tokens, page_tokens = layout_.page_tokens;
    while (static_cast<Position>(group.memory.size()) * page_tokens < end) {
      group.memory.emplace_back(cache::PageBytes(layout_, index), std::byte{0xFF});
    }
    group.views.clear();
    for (Position p = cache::OldestVisible(layout_.groups[index], sequence.offset); p < end;
         p += page_tokens - p % page_tokens) {
      const Position page_end = std::min(end, p - p % page_tokens + page_tokens);
      group.views.push_back({.base = group.memory[static_cast<size_t>(p / page_tokens)].data(),
                             .first = p,
                             .tokens = static_cast<int32_t>(page_end - p)});
    }
  }

  cache::Layout layout_;
  std::vector<Sequence> sequences_;
};

struct Case {
  int32_t heads, kv_heads, dim, page_tokens, window;
  ElementType element;
  float soft_cap = 0;
  bool sinks = false;
  int32_t latent = 0;
  bool slopes = false;

  int32_t value_dim() const { return latent > 0 ? latent : dim; }
};

inline std::string Name(const Case& c) {
  return testing::PrintToString(std::vector<int>{
      c.heads, c.kv_heads, c.dim, c.page_tokens, c.window, static_cast<int>(c.element),
      static_cast<int>(c.soft_cap), static_cast<int>(c.sinks), c.latent, static_cast<int>(c.slopes)});
}

inline cache::Layout LayoutOf(const Case& c) {
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

inline constexpr float kScale = 1.7F;

inline std::vector<float> SinksOf(const Case& c) {
  if (!c.sinks) return {};
  std::vector<float> sinks = Random(12).Floats(static_cast<size_t>(c.heads));
  sinks[0] = 9;  // above most scores
  return sinks;
}

inline std::vector<float> SlopesOf(const Case& c) {
  std::vector<float> slopes;
  for (int32_t head = 0; head < c.heads && c.slopes; ++head)
    slopes.push_back(0.3F / static_cast<float>(1 + head));
  return slopes;
}

inline void AppendRows(const std::vector<float>& from, int32_t begin, int32_t end, int32_t row_size,
                       std::vector<float>* to) {
  to->insert(to->end(), from.begin() + ptrdiff_t{begin} * row_size, from.begin() + ptrdiff_t{end} * row_size);
}

// Tokens [begin, end) of every sequence that see each other.
struct Image {
  int32_t begin, end;
};

// The position behind the last one that a token at p of a sequence of `length` sees.
inline int32_t SeenEndOf(std::span<const Image> images, int32_t p, int32_t length) {
  for (const Image& image : images) {
    if (p >= image.begin && p < image.end && image.end <= length) return image.end;
  }
  return p + 1;
}

// All sequences in steps of `chunk` tokens each, more where one would cut an image; the layer tested is the
// second of its group.
inline std::vector<std::vector<float>> Attend(ThreadPool& pool, const Case& c, const Inputs& in,
                                              int32_t chunk, std::span<const Image> images = {}) {
  const cache::Layout layout = LayoutOf(c);
  FakePages pages(layout, in.lengths.size());
  std::vector<std::vector<float>> result(in.lengths.size());
  AttentionPlan plan;
  const int32_t longest = *std::max_element(in.lengths.begin(), in.lengths.end());
  for (int32_t from = 0, to = 0; from < longest; from = to) {
    to = SeenEndOf(images, from + chunk - 1, longest);
    std::vector<float> q, k, v;
    std::vector<int32_t> row_begin = {0}, seen_end;
    for (size_t s = 0; s < in.lengths.size(); ++s) {
      const int32_t begin = std::min(from, in.lengths[s]), end = std::min(to, in.lengths[s]);
      pages.NextStep(s, begin, end - begin);
      AppendRows(in.q[s], begin, end, c.heads * c.dim, &q);
      AppendRows(in.k[s], begin, end, c.kv_heads * c.dim, &k);
      if (c.latent == 0) AppendRows(in.v[s], begin, end, c.kv_heads * c.dim, &v);
      row_begin.push_back(row_begin.back() + end - begin);
      for (int32_t p = begin; p < end && !images.empty(); ++p) {
        seen_end.push_back(SeenEndOf(images, p, in.lengths[s]));
      }
    }
    const AttentionLayer at{.layout = &layout,
                            .group = 0,
                            .layer = 1,
                            .step = &pages,
                            .row_begin = row_begin,
                            .seen_end = seen_end};
    std::vector<float> out(static_cast<size_t>(row_begin.back() * c.heads * c.value_dim()));
    const std::vector<float> sinks = SinksOf(c), slopes = SlopesOf(c);
    StoreKeyValue(pool, at, k, v);
    plan.Prepare(row_begin, c.heads, layout.groups[0], pool.threads());
    Attention(pool, at, plan, {.scale = kScale, .soft_cap = c.soft_cap, .sinks = sinks, .slopes = slopes}, q,
              out);
    for (size_t s = 0; s < in.lengths.size(); ++s) {
      AppendRows(out, row_begin[s], row_begin[s + 1], c.heads * c.value_dim(), &result[s]);
    }
  }
  return result;
}

// Number i of a head of `dim` as a page holds it.
inline double Kept(ElementType type, const float* head, int32_t i, int32_t dim) {
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
inline Inputs AsKept(const Case& c, const Inputs& in) {
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

// In double, from K and V as the pages hold them; the token at p sees those before `end`.
inline double Expected(const Case& c, const Inputs& in, size_t s, int32_t p, int32_t head, int32_t d,
                       int32_t end) {
  const auto at = [&](const std::vector<float>& x, int32_t row, int32_t i) {
    const int32_t kv_head = head / (c.heads / c.kv_heads);
    return static_cast<double>(x[static_cast<size_t>((row * c.kv_heads + kv_head) * c.dim + i)]);
  };
  const auto value = [&](int32_t key) {
    return c.latent > 0 ? at(in.k[s], key, c.dim - c.latent + d) : at(in.v[s], key, d);
  };
  const int32_t first = c.window == 0 ? 0 : std::max(0, p - c.window + 1);
  const std::vector<float> sinks = SinksOf(c), slopes = SlopesOf(c);
  double weight = c.sinks ? std::exp(static_cast<double>(sinks[static_cast<size_t>(head)])) : 0, sum = 0;
  for (int32_t key = first; key < end; ++key) {
    double score = 0;
    for (int32_t i = 0; i < c.dim; ++i) {
      score += in.q[s][static_cast<size_t>((p * c.heads + head) * c.dim + i)] * at(in.k[s], key, i);
    }
    score *= kScale;
    if (c.soft_cap > 0) score = c.soft_cap * std::tanh(score / c.soft_cap);
    if (c.slopes) score -= static_cast<double>(slopes[static_cast<size_t>(head)]) * (p - key);
    const double e = std::exp(score);
    weight += e;
    sum += e * value(key);
  }
  return sum / weight;
}
inline double Expected(const Case& c, const Inputs& in, size_t s, int32_t p, int32_t head, int32_t d) {
  return Expected(c, in, s, p, head, d, p + 1);
}

// What attention may differ from the formula: kI16 and kQ8_0 round queries and weights too, to 12 and 13 or
// 11 bits.
inline double Tolerance(const Case& c) {
  const bool in_integers =
      c.element == ElementType::kI16 || (c.element == ElementType::kQ8_0 && c.latent == 0);
  return in_integers ? 5e-3 : 2e-5;
}

}  // namespace quire::runner::kernels::test
