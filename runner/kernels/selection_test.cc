// Attention to chosen keys: against its formula, bit-identical to ordinary attention where all keys are
// chosen, and however a sequence is cut into steps.
#include "runner/kernels/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "cache/layout.h"
#include "runner/kernels/attention.h"
#include "runner/kernels/testing/attention_case.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/thread_pool.h"

namespace quire::runner::kernels::test {
namespace {

using cache::ElementType;
using cache::Position;

// As Attend(), but to the keys that `chosen` names for a position and a KV head.
template <class Chosen>
std::vector<float> AttendSelected(ThreadPool& pool, const Case& c, const Inputs& in, int32_t chunk,
                                  int32_t lists, const Chosen& chosen) {
  const cache::Layout layout = LayoutOf(c);
  FakePages pages(layout, 1);
  std::vector<float> result;
  const int32_t length = in.lengths[0];
  for (int32_t from = 0; from < length; from += chunk) {
    const int32_t to = std::min(from + chunk, length);
    pages.NextStep(0, from, to - from);
    std::vector<float> q, k, v;
    AppendRows(in.q[0], from, to, c.heads * c.dim, &q);
    AppendRows(in.k[0], from, to, c.kv_heads * c.dim, &k);
    if (c.latent == 0) AppendRows(in.v[0], from, to, c.kv_heads * c.dim, &v);
    const std::vector<int32_t> row_begin = {0, to - from};
    const AttentionLayer at{
        .layout = &layout, .group = 0, .layer = 1, .step = &pages, .row_begin = row_begin};
    StoreKeyValue(pool, at, k, v);
    Selection selection;
    selection.lists = lists;
    for (int32_t p = from; p < to; ++p) {
      for (int32_t list = 0; list < lists; ++list) selection.keys.push_back(chosen(p, list));
    }
    std::vector<float> out(static_cast<size_t>((to - from) * c.heads * c.value_dim()));
    const std::vector<float> sinks = SinksOf(c);
    const SelectedKeys source{.at = at, .chosen = &selection};
    SelectedAttention(pool, {&source, 1}, c.heads, {.scale = kScale, .soft_cap = c.soft_cap, .sinks = sinks},
                      q, out);
    result.insert(result.end(), out.begin(), out.end());
  }
  return result;
}

std::vector<int32_t> UpTo(int32_t end) {
  std::vector<int32_t> all(static_cast<size_t>(end));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {.heads = 4, .kv_heads = 2, .dim = 32, .page_tokens = 32, .window = 0, .element = ElementType::kF32},
      {.heads = 6, .kv_heads = 2, .dim = 24, .page_tokens = 8, .window = 0, .element = ElementType::kF16},
      {.heads = 4, .kv_heads = 2, .dim = 32, .page_tokens = 32, .window = 0, .element = ElementType::kI16},
      {.heads = 4, .kv_heads = 1, .dim = 64, .page_tokens = 32, .window = 0, .element = ElementType::kQ8_0},
      {.heads = 30,
       .kv_heads = 1,
       .dim = 40,
       .page_tokens = 16,
       .window = 0,
       .element = ElementType::kF32,
       .sinks = true,
       .latent = 32},
      {.heads = 3,
       .kv_heads = 1,
       .dim = 96,
       .page_tokens = 32,
       .window = 0,
       .element = ElementType::kBF16,
       .soft_cap = 2,
       .latent = 64},
  };
  return cases;
}

TEST(SelectedAttention, OfAllKeysHasTheBitsOfAttention) {
  ThreadPool pool(2);
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Name(c));
    const Inputs in(c, {1100});
    const auto all = AttendSelected(pool, c, in, 64, 1, [](int32_t p, int32_t) { return UpTo(p + 1); });
    EXPECT_EQ(all, Attend(pool, c, in, 37)[0]);
  }
}

// Some of the keys, others for each KV head.
std::vector<int32_t> SomeOf(int32_t p, int32_t list) {
  std::vector<int32_t> some;
  for (int32_t key = list; key <= p; key += key % 3 + 1 + list) some.push_back(key);
  if (some.empty()) some.push_back(p);
  return some;
}

TEST(SelectedAttention, ComputesItsFormulaHoweverTheStepIsCut) {
  ForEachInstructionSet([] {
    ThreadPool pool(2);
    for (const Case& c : Cases()) {
      SCOPED_TRACE(Name(c));
      const Inputs in(c, {150}), kept = AsKept(c, in);
      const auto once = AttendSelected(pool, c, in, 150, c.kv_heads, SomeOf);
      for (const int32_t chunk : {1, 7, 64}) {
        EXPECT_EQ(once, AttendSelected(pool, c, in, chunk, c.kv_heads, SomeOf));
      }
      // What is not chosen gets a key whose score is out of reach of the others, in the formula alone.
      for (const int32_t p : {0, 1, 40, 149}) {
        for (int32_t head = 0; head < c.heads; ++head) {
          Inputs only = kept;
          only.lengths = {0};
          std::vector<float> k, v;
          const std::vector<int32_t> keys = SomeOf(p, head / (c.heads / c.kv_heads));
          for (const int32_t key : keys) {
            AppendRows(kept.k[0], key, key + 1, c.kv_heads * c.dim, &k);
            if (c.latent == 0) AppendRows(kept.v[0], key, key + 1, c.kv_heads * c.dim, &v);
          }
          only.k[0] = k, only.v[0] = v;
          const auto got = once[static_cast<size_t>((p * c.heads + head) * c.value_dim() + 3)];
          EXPECT_NEAR(got, Expected(c, only, 0, p, head, 3, static_cast<int32_t>(keys.size())), Tolerance(c))
              << p << " " << head;
        }
      }
    }
  });
}

// Compressed rows and a window, as DeepSeek V4 has them: one softmax over both.
TEST(SelectedAttention, TakesRowsOfBlocksAndOfAWindowTogether) {
  constexpr int32_t kDim = 16, kHeads = 4, kStride = 3, kWindow = 5, kLength = 40;
  const cache::AttentionGroup window{
      .layers = 1, .kv_heads = 1, .head_dim = kDim, .window = kWindow, .latent = kDim};
  cache::AttentionGroup blocks = window;
  blocks.window = 0;
  blocks.stride = kStride;
  const cache::Layout layout{.page_tokens = 8, .groups = {window, blocks}, .recurrent = {}};
  Random random(5);
  const std::vector<float> rows = random.Floats(size_t{kLength} * kDim);
  const std::vector<float> compressed = random.Floats(size_t{kLength} * kDim);
  const std::vector<float> q = random.Floats(size_t{kLength} * kHeads * kDim);
  ThreadPool pool(2);
  const auto run = [&](int32_t chunk) {
    FakePages pages(layout, 1);
    std::vector<float> result;
    for (int32_t from = 0; from < kLength; from += chunk) {
      const int32_t to = std::min(from + chunk, kLength);
      pages.NextStep(0, from, to - from);
      const std::vector<int32_t> row_begin = {0, to - from};
      AttentionLayer near{.layout = &layout, .group = 0, .layer = 0, .step = &pages, .row_begin = row_begin};
      AttentionLayer far = near;
      far.group = 1;
      for (int32_t p = from; p < to; ++p) {
        WriteRow(near, 0, p, std::span(rows).subspan(static_cast<size_t>(p) * kDim, kDim));
        if ((p + 1) % kStride != 0) continue;
        WriteRow(far, 0, p, std::span(compressed).subspan(static_cast<size_t>(p / kStride) * kDim, kDim));
      }
      const std::vector<SelectedKeys> sources = {{.at = far}, {.at = near}};
      std::vector<float> out(static_cast<size_t>((to - from) * kHeads * kDim));
      SelectedAttention(pool, sources, kHeads, {.scale = 0.5F},
                        std::span(q).subspan(static_cast<size_t>(from * kHeads * kDim), out.size()), out);
      result.insert(result.end(), out.begin(), out.end());
    }
    return result;
  };
  const std::vector<float> got = run(kLength);
  for (const int32_t chunk : {1, 7}) EXPECT_EQ(got, run(chunk));
  for (int32_t p = 0; p < kLength; ++p) {
    for (int32_t head = 0; head < kHeads; ++head) {
      const float* const query = q.data() + (p * kHeads + head) * kDim;
      double weight = 0, sum = 0;
      const auto add = [&](const float* row) {
        double score = 0;
        for (int32_t i = 0; i < kDim; ++i) score += double{query[i]} * row[i];
        weight += std::exp(0.5 * score);
        sum += std::exp(0.5 * score) * row[1];
      };
      for (int32_t b = 0; b < (p + 1) / kStride; ++b) add(compressed.data() + b * kDim);
      for (int32_t s = std::max(0, p - kWindow + 1); s <= p; ++s) add(rows.data() + s * kDim);
      EXPECT_NEAR(got[static_cast<size_t>((p * kHeads + head) * kDim + 1)], sum / weight, 1e-5);
    }
  }
}

struct IndexCase {
  std::string name;
  IndexRule rule;
  int32_t dim, stride;
  bool weighted;
};

// The list of a row by the rule's words.
std::vector<int32_t> ExpectedList(const IndexCase& c, const std::vector<float>& keys, const float* q,
                                  const float* weights, int32_t list, int32_t p) {
  const IndexRule& rule = c.rule;
  const int32_t count = (p + 1) / c.stride, share = rule.heads / rule.lists;
  std::vector<double> scores(static_cast<size_t>(count));
  for (int32_t key = 0; key < count; ++key) {
    for (int32_t h = list * share; h < (list + 1) * share; ++h) {
      double product = 0;
      for (int32_t i = 0; i < c.dim; ++i) {
        product += double{q[h * c.dim + i]} * keys[static_cast<size_t>(key * c.dim + i)];
      }
      if (rule.relu) product = std::max(product, 0.0);
      scores[static_cast<size_t>(key)] += (c.weighted ? weights[h] : 1.0F) * product;
    }
  }
  const int32_t width = rule.block > 1 ? rule.block : c.stride;
  if (rule.block > 1) {
    std::vector<double> pooled;
    for (int32_t first = 0; first < count; first += rule.block) {
      const auto begin = scores.begin() + first, end = scores.begin() + std::min(first + rule.block, count);
      pooled.push_back(*std::max_element(begin, end));
    }
    for (int32_t i = 0; i < rule.local_blocks && i < std::ssize(pooled); ++i) *(pooled.rbegin() + i) = 1e30;
    scores = pooled;
  }
  std::vector<int32_t> order = UpTo(static_cast<int32_t>(scores.size()));
  std::ranges::stable_sort(order, std::greater(), [&](int32_t i) { return scores[static_cast<size_t>(i)]; });
  if (std::ssize(order) > rule.best) order.resize(static_cast<size_t>(rule.best));
  std::ranges::sort(order);
  if (rule.block == 1 && !rule.expand) return order;
  std::vector<int32_t> tokens;
  for (const int32_t block : order) {
    for (int32_t t = block * width; t < std::min((block + 1) * width, p + 1); ++t) tokens.push_back(t);
  }
  for (int32_t t = count * c.stride; rule.expand && t <= p; ++t) tokens.push_back(t);
  return tokens;
}

const std::vector<IndexCase>& IndexCases() {
  static const std::vector<IndexCase> cases = {
      {"tokens", {.heads = 5, .scale = 0.25F, .best = 7}, 16, 1, true},
      {"many heads", {.heads = 130, .scale = 0.25F, .best = 3}, 8, 1, true},
      {"blocks", {.heads = 3, .best = 4}, 24, 3, true},
      {"tokens of blocks", {.heads = 4, .scale = 0.125F, .best = 5, .expand = true}, 16, 4, false},
      {"large blocks", {.heads = 4, .best = 1, .expand = true}, 16, 33, false},
      {"pooled",
       {.heads = 2, .lists = 2, .relu = false, .best = 3, .block = 5, .local_blocks = 1},
       16,
       1,
       false},
  };
  return cases;
}

TEST(SelectKeys, TakesTheBestHoweverTheStepIsCut) {
  ForEachInstructionSet([] {
    constexpr int32_t kLength = 150;
    ThreadPool pool(2);
    for (const IndexCase& c : IndexCases()) {
      SCOPED_TRACE(c.name);
      const cache::Layout layout{
          .page_tokens = 8,
          .groups = {{.layers = 2, .kv_heads = 1, .head_dim = c.dim, .latent = c.dim, .stride = c.stride}},
          .recurrent = {}};
      Random random(7);
      const std::vector<float> keys = random.Floats(static_cast<size_t>(kLength * c.dim));
      const std::vector<float> q = random.Floats(static_cast<size_t>(kLength * c.rule.heads * c.dim));
      const std::vector<float> weights = random.Floats(static_cast<size_t>(kLength * c.rule.heads));
      for (const int32_t chunk : {kLength, 1, 7, 64}) {
        FakePages pages(layout, 1);
        for (int32_t from = 0; from < kLength; from += chunk) {
          const int32_t to = std::min(from + chunk, kLength);
          pages.NextStep(0, from, to - from);
          const std::vector<int32_t> row_begin = {0, to - from};
          const AttentionLayer at{
              .layout = &layout, .group = 0, .layer = 1, .step = &pages, .row_begin = row_begin};
          for (int32_t p = from; p < to; ++p) {
            if ((p + 1) % c.stride != 0) continue;
            const auto row = static_cast<size_t>(p / c.stride * c.dim);
            WriteRow(at, 0, p, std::span(keys).subspan(row, static_cast<size_t>(c.dim)));
          }
          Selection got;
          const auto first = static_cast<size_t>(from * c.rule.heads);
          SelectKeys(pool, at, c.rule, std::span(q).subspan(first * static_cast<size_t>(c.dim)),
                     c.weighted ? std::span(weights).subspan(first) : std::span<const float>(), &got);
          for (int32_t p = from; p < to; ++p) {
            for (int32_t list = 0; list < c.rule.lists; ++list) {
              const auto want = ExpectedList(c, keys, q.data() + p * c.rule.heads * c.dim,
                                             weights.data() + p * c.rule.heads, list, p);
              const auto is = got.Of(static_cast<size_t>(p - from), list);
              ASSERT_EQ(std::vector(is.begin(), is.end()), want) << p << " of list " << list;
            }
          }
        }
      }
    }
  });
}

TEST(SelectKeys, TakesTheFirstOfEqualKeys) {
  const cache::Layout layout{.page_tokens = 8,
                             .groups = {{.layers = 1, .kv_heads = 1, .head_dim = 8, .latent = 8}},
                             .recurrent = {}};
  FakePages pages(layout, 1);
  pages.NextStep(0, 0, 20);
  const std::vector<int32_t> row_begin = {0, 20};
  const AttentionLayer at{.layout = &layout, .group = 0, .layer = 0, .step = &pages, .row_begin = row_begin};
  for (int32_t p = 0; p < 20; ++p) WriteRow(at, 0, p, std::vector<float>(8, p == 12 ? 1.0F : -1.0F));
  ThreadPool pool(1);
  Selection got;
  SelectKeys(pool, at, {.best = 3}, std::vector<float>(20 * 8, 1.0F), {}, &got);
  EXPECT_EQ(got.keys[19], (std::vector<int32_t>{0, 1, 12}));
}

}  // namespace
}  // namespace quire::runner::kernels::test
