// Short convolutions and the gated delta rule: against their formulas, and bit-identical however a sequence
// is chunked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "runner/kernels/gated_delta.h"
#include "runner/kernels/short_conv.h"
#include "runner/kernels/testing/fake_states.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/recorded_bits.h"

namespace quire::runner::kernels {
namespace {

using test::FakeStates;
using test::ForEachInstructionSet;
using test::Random;

constexpr int32_t kLengths[] = {1, 9, 40};
constexpr size_t kRecurrentSequences = std::size(kLengths);

// The output of a layer for the sequences.
struct Result {
  std::vector<std::vector<float>> y;       // [sequence][tokens * width]
  std::vector<std::vector<float>> states;  // [sequence] slots at the end
  std::vector<std::vector<float>> record;  // [sequence] of all tokens
  std::vector<float> captured;             // the last sequence's slot after kCaptureAt tokens

  bool operator==(const Result&) const = default;
};
constexpr int32_t kCaptureAt = 17;

// Runs one step over the rows [begin, end) of each sequence; y [rows, width].
using RunStep = std::function<std::vector<float>(const RecurrentLayer& at, std::span<const int32_t> begin,
                                                 std::span<const int32_t> end)>;

Result InChunks(const cache::Layout& layout, int32_t chunk, size_t width, const RunStep& run) {
  FakeStates states(layout, kRecurrentSequences);
  Result result{.y = std::vector<std::vector<float>>(kRecurrentSequences),
                .states = {},
                .record = std::vector<std::vector<float>>(kRecurrentSequences),
                .captured = {}};
  for (int32_t from = 0; from < kLengths[kRecurrentSequences - 1]; from += chunk) {
    std::vector<int32_t> begin, end, row_begin = {0};
    for (size_t s = 0; s < kRecurrentSequences; ++s) {
      begin.push_back(std::min(from, kLengths[s]));
      end.push_back(std::min(from + chunk, kLengths[s]));
      row_begin.push_back(row_begin.back() + end[s] - begin[s]);
      const int32_t after = kCaptureAt - from;
      const bool inside = s == kRecurrentSequences - 1 && after > 0 && after < end[s] - begin[s];
      states.NextStep(s, end[s] - begin[s], inside ? std::vector{after} : std::vector<int32_t>(), true);
    }
    const std::vector<float> y =
        run({.layout = &layout, .layer = 0, .step = &states, .row_begin = row_begin}, begin, end);
    for (size_t s = 0; s < kRecurrentSequences; ++s) {
      const auto first = y.begin() + row_begin[s] * static_cast<ptrdiff_t>(width);
      const auto last = y.begin() + row_begin[s + 1] * static_cast<ptrdiff_t>(width);
      result.y[s].insert(result.y[s].end(), first, last);
      const std::vector<float>& record = states.record(s);
      result.record[s].insert(result.record[s].end(), record.begin(), record.end());
    }
    const size_t last = kRecurrentSequences - 1;
    if (end[last] == kCaptureAt) result.captured = states.slot(last);
    if (begin[last] < kCaptureAt && end[last] > kCaptureAt) result.captured = states.captured(last, 0);
  }
  for (size_t s = 0; s < kRecurrentSequences; ++s) result.states.push_back(states.slot(s));
  return result;
}

// Rows [begin, end) of each sequence's [tokens, width], end to end.
std::vector<float> Rows(const std::vector<std::vector<float>>& of, size_t width,
                        std::span<const int32_t> begin, std::span<const int32_t> end) {
  std::vector<float> rows;
  for (size_t s = 0; s < of.size(); ++s) {
    const auto w = static_cast<ptrdiff_t>(width);
    rows.insert(rows.end(), of[s].begin() + begin[s] * w, of[s].begin() + end[s] * w);
  }
  return rows;
}

std::vector<std::vector<float>> RandomRows(Random& random, size_t width) {
  std::vector<std::vector<float>> rows;
  for (const int32_t length : kLengths) rows.push_back(random.Floats(static_cast<size_t>(length) * width));
  return rows;
}

struct Conv {
  Conv(ConvForm of_form, int64_t of_channels, int64_t of_kernel, int64_t of_dilation)
      : form(of_form),
        channels(of_channels),
        kernel(of_kernel),
        dilation(of_dilation),
        width(static_cast<size_t>(of_channels)),
        parts(of_form == ConvForm::kGated ? 3 : 1) {
    Random random(11);
    taps = random.Floats(static_cast<size_t>(kernel) * width);
    if (kernel % 2 == 0) bias = random.Floats(width);
    inputs = RandomRows(random, parts * width);
    layout.recurrent.push_back({.conv_tail = static_cast<int32_t>((kernel - 1) * dilation),
                                .conv_dim = static_cast<int32_t>(channels),
                                .record_bytes = static_cast<int32_t>(channels) * 4});
  }

  Result Run(ThreadPool& pool, int32_t chunk) const {
    return InChunks(layout, chunk, width, [&](const RecurrentLayer& at, auto begin, auto end) {
      const std::vector<float> input = Rows(inputs, parts * width, begin, end);
      std::vector<float> y(input.size() / parts);
      ShortConv(pool, {.at = at,
                       .form = form,
                       .channels = channels,
                       .kernel = kernel,
                       .dilation = dilation,
                       .taps = taps,
                       .bias = bias,
                       .input = input,
                       .y = y});
      return y;
    });
  }

  double Input(size_t s, size_t t, size_t c) const {
    const float* row = inputs[s].data() + t * parts * width;
    return form == ConvForm::kGated ? row[c] * static_cast<double>(row[2 * width + c]) : row[c];
  }

  double Expected(size_t s, size_t t, size_t c) const {
    double sum = bias.empty() ? 0 : bias[c];
    const auto taps_count = static_cast<size_t>(kernel), apart = static_cast<size_t>(dilation);
    for (size_t k = 0; k < taps_count; ++k) {
      const size_t back = (taps_count - 1 - k) * apart;
      if (t >= back) sum += taps[k * width + c] * Input(s, t - back, c);
    }
    if (form == ConvForm::kGated) return inputs[s][(t * 3 + 1) * width + c] * sum;
    return sum / (1 + std::exp(-sum));
  }

  ConvForm form;
  int64_t channels, kernel, dilation;
  size_t width, parts;
  std::vector<float> taps, bias;
  std::vector<std::vector<float>> inputs;
  cache::Layout layout;
};

TEST(ShortConv, AgreesWithTheFormulaHoweverItIsCut) {
  ThreadPool pool(3);
  ForEachInstructionSet([&] {
    for (const ConvForm form : {ConvForm::kGated, ConvForm::kSilu}) {
      for (const int64_t channels : {1, 16, 37, 700}) {
        for (const auto& [kernel, dilation] : {std::pair{2, 1}, {3, 1}, {6, 1}, {4, 3}}) {
          const Conv conv(form, channels, kernel, dilation);
          const Result whole = conv.Run(pool, 40);
          for (size_t s = 0; s < kRecurrentSequences; ++s) {
            for (size_t i = 0; i < whole.y[s].size(); ++i) {
              const size_t t = i / conv.width, c = i % conv.width;
              ASSERT_NEAR(whole.y[s][i], conv.Expected(s, t, c), 1e-5) << "sequence " << s << " at " << i;
              ASSERT_EQ(whole.record[s][i], static_cast<float>(conv.Input(s, t, c)));
            }
          }
          for (const int32_t chunk : {1, 2, 3, 7, 17, 39}) {
            ASSERT_EQ(whole, conv.Run(pool, chunk)) << "chunks of " << chunk;
          }
        }
      }
    }
  });
}

struct Delta {
  explicit Delta(GatedDeltaShape of) : shape(of) {
    Random random(7);
    qkv = RandomRows(random, static_cast<size_t>(shape.channels()));
    decay = RandomRows(random, decays());
    beta = RandomRows(random, heads());
    for (auto& gates : {&decay, &beta}) {
      for (auto& rows : *gates) {
        for (float& value : rows) value = 0.55F + 0.4F * value;
      }
    }
    layout.recurrent.push_back(
        {.delta_heads = static_cast<int32_t>(shape.value_heads),
         .delta_value_dim = static_cast<int32_t>(shape.value_dim),
         .delta_key_dim = static_cast<int32_t>(shape.key_dim),
         .record_bytes = static_cast<int32_t>(4 * (shape.channels() + shape.decays() + shape.value_heads))});
  }
  size_t heads() const { return static_cast<size_t>(shape.value_heads); }
  size_t decays() const { return static_cast<size_t>(shape.decays()); }

  Result Run(ThreadPool& pool, int32_t chunk) const {
    const auto width = static_cast<size_t>(shape.values()), channels = static_cast<size_t>(shape.channels());
    return InChunks(layout, chunk, width, [&](const RecurrentLayer& at, auto begin, auto end) {
      std::vector<float> rows = Rows(qkv, channels, begin, end);
      std::vector<float> y(rows.size() / channels * width);
      GatedDelta(pool, {.at = at,
                        .shape = shape,
                        .qkv = rows,
                        .decay = Rows(decay, decays(), begin, end),
                        .beta = Rows(beta, heads(), begin, end),
                        .y = y});
      return y;
    });
  }

  // Head h of sequence s, in double: y [tokens, value_dim].
  std::vector<double> Expected(size_t s, size_t h) const {
    const auto dk = static_cast<size_t>(shape.key_dim), dv = static_cast<size_t>(shape.value_dim);
    const auto key_heads = static_cast<size_t>(shape.key_heads);
    const size_t key_head = shape.tiled ? h % key_heads : h / (heads() / key_heads);
    std::vector<double> state(dv * dk), y;
    for (size_t t = 0; t < static_cast<size_t>(kLengths[s]); ++t) {
      const float* row = qkv[s].data() + t * static_cast<size_t>(shape.channels());
      const auto normal = [&](size_t at) {
        double squares = 1e-6;
        for (size_t i = 0; i < dk; ++i) squares += std::pow(row[at + i], 2);
        return 1 / std::sqrt(squares);
      };
      const size_t q = key_head * dk, k = (key_heads + key_head) * dk, v = 2 * key_heads * dk + h * dv;
      const double q_factor = normal(q) / std::sqrt(static_cast<double>(dk)), k_factor = normal(k);
      for (size_t j = 0; j < dv; ++j) {
        double told = 0, out = 0;
        for (size_t i = 0; i < dk; ++i) {
          state[j * dk + i] *= decay[s][t * decays() + (shape.by_channel ? h * dk + i : h)];
          told += state[j * dk + i] * row[k + i] * k_factor;
        }
        const double change = (row[v + j] - told) * beta[s][t * heads() + h];
        for (size_t i = 0; i < dk; ++i) {
          state[j * dk + i] += change * row[k + i] * k_factor;
          out += state[j * dk + i] * row[q + i] * q_factor;
        }
        y.push_back(out);
      }
    }
    return y;
  }

  GatedDeltaShape shape;
  std::vector<std::vector<float>> qkv, decay, beta;
  cache::Layout layout;
};

TEST(GatedDelta, AgreesWithTheFormulaHoweverItIsCut) {
  ThreadPool pool(3);
  const GatedDeltaShape shapes[] = {
      {2, 4, 16, 16, false}, {2, 4, 16, 16, true},       {3, 3, 21, 7, false},      {1, 4, 128, 10, false},
      {2, 2, 5, 1, true},    {3, 3, 16, 8, false, true}, {2, 4, 21, 7, false, true}};
  ForEachInstructionSet([&] {
    for (const GatedDeltaShape& shape : shapes) {
      const Delta delta(shape);
      const Result whole = delta.Run(pool, 40);
      const auto dv = static_cast<size_t>(shape.value_dim);
      for (size_t s = 0; s < kRecurrentSequences; ++s) {
        for (size_t h = 0; h < delta.heads(); ++h) {
          const std::vector<double> expected = delta.Expected(s, h);
          for (size_t i = 0; i < expected.size(); ++i) {
            const size_t at = (i / dv * delta.heads() + h) * dv + i % dv;
            ASSERT_NEAR(whole.y[s][at], expected[i], 2e-6)
                << "sequence " << s << " head " << h << " at " << i;
          }
        }
      }
      for (const int32_t chunk : {1, 2, 7, 17, 39}) {
        ASSERT_EQ(whole, delta.Run(pool, chunk)) << "chunks of " << chunk;
      }
    }
  });
}

// Many threads share the rows of a head.
TEST(GatedDelta, AnyNumberOfThreadsGivesTheSameBits) {
  ThreadPool one(1);
  for (const int threads : {2, 7, 64}) {
    ThreadPool pool(threads);
    for (const GatedDeltaShape& shape :
         {GatedDeltaShape{1, 1, 128, 128, false}, {1, 2, 133, 50, false}, {2, 2, 160, 33, true, true}}) {
      const Delta delta(shape);
      ASSERT_EQ(delta.Run(one, 40), delta.Run(pool, 40)) << threads << " threads";
      ASSERT_EQ(delta.Run(one, 40), delta.Run(pool, 3)) << threads << " threads, chunks of 3";
    }
  }
}

TEST(GatedDelta, ADecayOfEachChannelIsOfItsFormula) {
  ThreadPool pool(2);
  const std::vector<float> rate = {-0.5F, -4.0F},
                           bias = {0.25F, -1.0F, 2.0F, 0.5F};  // two heads of two channels
  const std::vector<float> a = {1, -3, 40, 0.5F, 0, 2, -100, 3};
  std::vector<float> decay = a;
  ChannelDecay(pool, rate, bias, decay);
  for (size_t i = 0; i < a.size(); ++i) {
    const double softplus = std::log1p(std::exp(static_cast<double>(a[i]) + bias[i % 4]));
    EXPECT_NEAR(decay[i], std::exp(rate[i % 4 / 2] * softplus), 1e-6);
  }
}

TEST(GatedDelta, GatesAreOfTheirFormulas) {
  const std::vector<float> rate = {-0.5F, -4.0F}, bias = {0.25F, -1.0F};
  const std::vector<float> a = {1, -3, 40, 0.5F}, b = {0, 2, -100, 100};
  std::vector<float> decay = a, beta = b;
  DeltaGates(rate, bias, decay, beta);
  for (size_t i = 0; i < a.size(); ++i) {
    const double softplus = std::log1p(std::exp(static_cast<double>(a[i]) + bias[i % 2]));
    EXPECT_NEAR(decay[i], std::exp(rate[i % 2] * softplus), 1e-6);
    EXPECT_NEAR(beta[i], 1 / (1 + std::exp(-static_cast<double>(b[i]))), 1e-6);
  }
}

TEST(RecordedBits, DeltaRuleAndConvolution) {
  ThreadPool pool(1);
  test::ExpectBits("ec751f3718260df8", [&](test::BitHash& hash) {
    for (const GatedDeltaShape& shape :
         {GatedDeltaShape{3, 3, 21, 7, false}, {1, 4, 128, 10, false}, {2, 4, 21, 7, false, true}}) {
      const Result result = Delta(shape).Run(pool, 40);
      for (size_t s = 0; s < kRecurrentSequences; ++s) {
        hash.Add(result.y[s]);
        hash.Add(result.states[s]);
      }
    }
    for (const ConvForm form : {ConvForm::kGated, ConvForm::kSilu}) {
      for (const std::vector<float>& y : Conv(form, 37, 4, 1).Run(pool, 40).y) hash.Add(y);
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
