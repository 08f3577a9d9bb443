// State-space layers: against their formulas, bit-identical however a sequence is chunked, and with every
// instruction set.
#include "runner/kernels/state_space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runner/kernels/lightning.h"
#include "runner/kernels/testing/fake_states.h"
#include "runner/kernels/testing/instruction_sets.h"
#include "runner/kernels/testing/recorded_bits.h"

namespace quire::runner::kernels {
namespace {

using test::FakeStates;
using test::ForEachInstructionSet;
using test::Random;

constexpr int32_t kScanLengths[] = {1, 9, 40};
constexpr int32_t kScanCaptureAt = 17;  // of the last sequence

using ScanRows = std::vector<std::vector<float>>;  // [sequence][tokens * width]

ScanRows RandomScanRows(Random& random, size_t width) {
  ScanRows rows;
  for (const int32_t length : kScanLengths)
    rows.push_back(random.Floats(static_cast<size_t>(length) * width));
  return rows;
}

// What a layer gives for all sequences.
struct ScanResult {
  ScanRows y, states, record;
  std::vector<float> captured;

  bool operator==(const ScanResult&) const = default;
};

// The rows of one step.
struct Part {
  RecurrentLayer at;
  std::vector<int32_t> begin, end;

  std::vector<float> Of(const ScanRows& rows, size_t width) const {
    std::vector<float> some;
    for (size_t s = 0; s < rows.size(); ++s) {
      const auto w = static_cast<ptrdiff_t>(width);
      some.insert(some.end(), rows[s].begin() + begin[s] * w, rows[s].begin() + end[s] * w);
    }
    return some;
  }
};

// run(part) gives y of a part's rows.
template <class Run>
ScanResult StateSpaceInChunks(const cache::Layout& layout, int32_t chunk, size_t width, const Run& run) {
  constexpr size_t kSequences = std::size(kScanLengths);
  FakeStates states(layout, kSequences);
  ScanResult result{.y = ScanRows(kSequences), .states = {}, .record = ScanRows(kSequences), .captured = {}};
  for (int32_t from = 0; from < kScanLengths[kSequences - 1]; from += chunk) {
    Part part;
    std::vector<int32_t> row_begin = {0};
    for (size_t s = 0; s < kSequences; ++s) {
      part.begin.push_back(std::min(from, kScanLengths[s]));
      part.end.push_back(std::min(from + chunk, kScanLengths[s]));
      const int32_t count = part.end[s] - part.begin[s], after = kScanCaptureAt - from;
      row_begin.push_back(row_begin.back() + count);
      const bool inside = s == kSequences - 1 && after > 0 && after < count;
      states.NextStep(s, count, inside ? std::vector{after} : std::vector<int32_t>(), true);
    }
    part.at = {.layout = &layout, .layer = 0, .step = &states, .row_begin = row_begin};
    const std::vector<float> y = run(part);
    const auto w = static_cast<ptrdiff_t>(width);
    for (size_t s = 0; s < kSequences; ++s) {
      result.y[s].insert(result.y[s].end(), y.begin() + row_begin[s] * w, y.begin() + row_begin[s + 1] * w);
      const std::vector<float>& record = states.record(s);
      result.record[s].insert(result.record[s].end(), record.begin(), record.end());
    }
    const size_t last = kSequences - 1;
    if (part.end[last] == kScanCaptureAt) result.captured = states.slot(last);
    if (part.begin[last] < kScanCaptureAt && part.end[last] > kScanCaptureAt)
      result.captured = states.captured(last, 0);
  }
  for (size_t s = 0; s < kSequences; ++s) result.states.push_back(states.slot(s));
  return result;
}

struct Ssd {
  explicit Ssd(SsdShape of) : shape(of) {
    Random random(5);
    xbc = RandomScanRows(random, static_cast<size_t>(shape.channels()));
    steps = RandomScanRows(random, heads());
    decay = RandomScanRows(random, heads());
    for (ScanRows* gates : {&steps, &decay}) {
      for (std::vector<float>& row : *gates) {
        for (float& value : row) value = 0.55F + 0.4F * value;
      }
    }
    skip = random.Floats(heads());
    layout.recurrent.push_back(
        {.delta_heads = static_cast<int32_t>(shape.heads),
         .delta_value_dim = static_cast<int32_t>(shape.state),
         .delta_key_dim = static_cast<int32_t>(shape.head_dim),
         .record_bytes = static_cast<int32_t>(4 * (shape.channels() + 2 * shape.heads))});
  }
  size_t heads() const { return static_cast<size_t>(shape.heads); }

  ScanResult Run(ThreadPool& pool, int32_t chunk) const {
    const auto inner = static_cast<size_t>(shape.inner());
    return StateSpaceInChunks(layout, chunk, inner, [&](const Part& part) {
      const std::vector<float> dt = part.Of(steps, heads());
      std::vector<float> y(dt.size() / heads() * inner);
      SsdScan(pool, {.at = part.at,
                     .shape = shape,
                     .xbc = part.Of(xbc, static_cast<size_t>(shape.channels())),
                     .dt = dt,
                     .decay = part.Of(decay, heads()),
                     .skip = skip,
                     .y = y});
      return y;
    });
  }

  // Head h of sequence s, in double: y [tokens, head_dim].
  std::vector<double> Expected(size_t s, size_t h) const {
    const auto p = static_cast<size_t>(shape.head_dim), n = static_cast<size_t>(shape.state);
    const auto groups = static_cast<size_t>(shape.groups), inner = static_cast<size_t>(shape.inner());
    const size_t group = h / (heads() / groups);
    std::vector<double> state(n * p), y;
    for (size_t t = 0; t < static_cast<size_t>(kScanLengths[s]); ++t) {
      const float* const row = xbc[s].data() + t * static_cast<size_t>(shape.channels());
      for (size_t i = 0; i < p; ++i) {
        const double x = row[h * p + i];
        double sum = skip[h] * x;
        for (size_t j = 0; j < n; ++j) {
          double& cell = state[j * p + i];
          cell =
              cell * decay[s][t * heads() + h] + steps[s][t * heads() + h] * x * row[inner + group * n + j];
          sum += cell * row[inner + (groups + group) * n + j];
        }
        y.push_back(sum);
      }
    }
    return y;
  }

  SsdShape shape;
  ScanRows xbc, steps, decay;
  std::vector<float> skip;
  cache::Layout layout;
};

TEST(SsdScan, AgreesWithTheFormulaHoweverItIsCut) {
  ThreadPool pool(3);
  for (const SsdShape& shape : {SsdShape{4, 16, 2, 16}, SsdShape{3, 80, 1, 9}, SsdShape{4, 5, 4, 3},
                                SsdShape{2, 64, 1, 128}, SsdShape{6, 24, 3, 1}}) {
    const Ssd ssd(shape);
    const auto dim = static_cast<size_t>(shape.head_dim);
    const ScanResult first = ssd.Run(pool, 40);
    ForEachInstructionSet([&] {
      const ScanResult whole = ssd.Run(pool, 40);
      ASSERT_EQ(whole, first) << "another instruction set";
      for (size_t s = 0; s < std::size(kScanLengths); ++s) {
        for (size_t h = 0; h < ssd.heads(); ++h) {
          const std::vector<double> expected = ssd.Expected(s, h);
          for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(whole.y[s][(i / dim * ssd.heads() + h) * dim + i % dim], expected[i], 1e-4)
                << "sequence " << s << " head " << h << " at " << i;
          }
        }
      }
      for (const int32_t chunk : {1, 7, 17, 39}) {
        ASSERT_EQ(whole, ssd.Run(pool, chunk)) << "chunks of " << chunk;
      }
    });
  }
}

TEST(SsdScan, GatesAreOfTheirFormulas) {
  const std::vector<float> bias = {0.25F, -1.0F}, rate = {-0.5F, -4.0F};
  const std::vector<float> raw = {1, -3, 40, 0.5F, -100, 0};
  std::vector<float> dt = raw, decay(raw.size());
  ThreadPool pool(1);
  SsdGates(pool, {.bias = bias, .rate = rate, .low = 0.02F, .high = 30}, dt, decay);
  for (size_t i = 0; i < raw.size(); ++i) {
    const double step = std::log1p(std::exp(static_cast<double>(raw[i]) + bias[i % 2]));
    EXPECT_NEAR(dt[i], std::clamp(step, 0.02, 30.0), 1e-6);
    EXPECT_NEAR(decay[i], std::exp(dt[i] * rate[i % 2]), 1e-6);
  }
}

// Enough rows for several tasks.
TEST(SsdScan, GatesDoNotDependOnThreads) {
  constexpr size_t kHeads = 24, kRows = 100;
  Random random(12);
  const std::vector<float> bias = random.Floats(kHeads), rate = random.Floats(kHeads),
                           raw = random.Floats(kHeads * kRows);
  const auto run = [&](int32_t threads) {
    ThreadPool pool(threads);
    std::vector<float> dt = raw, decay(raw.size());
    SsdGates(pool, {.bias = bias, .rate = rate, .low = 0.01F, .high = 2}, dt, decay);
    dt.insert(dt.end(), decay.begin(), decay.end());
    return dt;
  };
  EXPECT_EQ(run(3), run(1));
}

struct Selective {
  Selective(int64_t of_inner, int64_t of_state) : inner(of_inner), state(of_state) {
    Random random(8);
    x = RandomScanRows(random, width());
    dt = RandomScanRows(random, width());
    for (std::vector<float>& row : dt) {
      for (float& value : row) value = 0.55F + 0.4F * value;
    }
    b = RandomScanRows(random, states());
    c = RandomScanRows(random, states());
    rate = random.Floats(states() * width());
    for (float& value : rate) value = -1.5F - value;
    skip = random.Floats(width());
    layout.recurrent.push_back({.delta_heads = 1,
                                .delta_value_dim = static_cast<int32_t>(state),
                                .delta_key_dim = static_cast<int32_t>(inner),
                                .record_bytes = static_cast<int32_t>(4 * (2 * inner + state))});
  }
  size_t width() const { return static_cast<size_t>(inner); }
  size_t states() const { return static_cast<size_t>(state); }

  ScanResult Run(ThreadPool& pool, int32_t chunk) const {
    return StateSpaceInChunks(layout, chunk, width(), [&](const Part& part) {
      const std::vector<float> in = part.Of(x, width());
      std::vector<float> y(in.size());
      SelectiveScan(pool, {.at = part.at,
                           .inner = inner,
                           .state = state,
                           .x = in,
                           .dt = part.Of(dt, width()),
                           .b = part.Of(b, states()),
                           .c = part.Of(c, states()),
                           .rate = rate,
                           .skip = skip,
                           .y = y});
      return y;
    });
  }

  // Channel i of sequence s: y [tokens].
  std::vector<double> Expected(size_t s, size_t i) const {
    std::vector<double> cells(states()), y;
    for (size_t t = 0; t < static_cast<size_t>(kScanLengths[s]); ++t) {
      const double step = dt[s][t * width() + i], in = x[s][t * width() + i];
      double sum = skip[i] * in;
      for (size_t n = 0; n < states(); ++n) {
        cells[n] = cells[n] * std::exp(step * rate[n * width() + i]) + step * in * b[s][t * states() + n];
        sum += cells[n] * c[s][t * states() + n];
      }
      y.push_back(sum);
    }
    return y;
  }

  int64_t inner, state;
  ScanRows x, dt, b, c;
  std::vector<float> rate, skip;
  cache::Layout layout;
};

TEST(SelectiveScan, AgreesWithTheFormulaHoweverItIsCut) {
  ThreadPool pool(3);
  for (const auto& [inner, state] : {std::pair<int64_t, int64_t>{128, 8}, {37, 16}, {300, 3}}) {
    const Selective selective(inner, state);
    ForEachInstructionSet([&] {
      const ScanResult whole = selective.Run(pool, 40);
      for (size_t s = 0; s < std::size(kScanLengths); ++s) {
        for (size_t i = 0; i < selective.width(); ++i) {
          const std::vector<double> expected = selective.Expected(s, i);
          for (size_t t = 0; t < expected.size(); ++t) {
            ASSERT_NEAR(whole.y[s][t * selective.width() + i], expected[t], 1e-5) << s << ", " << i;
          }
        }
      }
      for (const int32_t chunk : {1, 7, 17, 39}) {
        ASSERT_EQ(whole, selective.Run(pool, chunk)) << "chunks of " << chunk;
      }
    });
  }
}

TEST(GatedRmsNorm, NormsGroupsBeforeOrBehindTheGate) {
  ThreadPool pool(2);
  Random random(3);
  constexpr size_t kWidth = 42;
  const std::vector<float> weight = random.Floats(kWidth), gate = random.Floats(3 * kWidth);
  const std::vector<float> x = random.Floats(3 * kWidth);
  for (const bool norm_first : {false, true}) {
    for (const int64_t group : {42, 21, 7}) {
      std::vector<float> y = x;
      GatedRmsNorm(pool, {.group = group, .eps = 1e-5F, .norm_first = norm_first}, weight, gate, y);
      for (size_t i = 0; i < y.size(); ++i) {
        const auto silu = [&](size_t at) {
          return gate[at] / (1 + std::exp(-static_cast<double>(gate[at])));
        };
        const size_t begin = i / static_cast<size_t>(group) * static_cast<size_t>(group);
        double squares = 0;
        for (size_t at = begin; at < begin + static_cast<size_t>(group); ++at) {
          squares += std::pow(x[at] * (norm_first ? 1 : silu(at)), 2);
        }
        const double norm = std::sqrt(squares / static_cast<double>(group) + 1e-5);
        EXPECT_NEAR(y[i], x[i] * silu(i) / norm * weight[i % kWidth], 1e-5) << i;
      }
    }
  }
}

TEST(Lightning, BringsWhatTheScanSeesIntoItsOrder) {
  constexpr size_t kHeads = 3, kDim = 10, kRows = 5, kInner = kHeads * kDim;
  ThreadPool pool(2);
  Random random(11);
  const std::vector<float> x = random.Floats(kRows * 3 * kInner);
  ForEachInstructionSet([&] {
    std::vector<float> to(x.size());
    SiluToScanOrder(pool, kHeads, kDim, x, to);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < 3 * kInner; ++i) {
        const size_t head = i / (3 * kDim), part = i / kDim % 3, at = i % kDim;  // part: q, k, v
        const double from = x[row * 3 * kInner + i];
        const float got = to[row * 3 * kInner + (2 - part) * kInner + head * kDim + at];
        EXPECT_NEAR(got, from / (1 + std::exp(-from)), 1e-6) << row << " " << i;
      }
    }
  });
}

TEST(RecordedBits, StateSpaceScan) {
  ThreadPool pool(1);
  test::ExpectBits("73f4c4d230442cda", [&](test::BitHash& hash) {
    const ScanResult result = Ssd({.heads = 4, .head_dim = 21, .groups = 2, .state = 13}).Run(pool, 40);
    for (size_t s = 0; s < result.y.size(); ++s) {
      hash.Add(result.y[s]);
      hash.Add(result.states[s]);
    }
  });
}

}  // namespace
}  // namespace quire::runner::kernels
