// PLaMo 2 against its formulas, written out in double, with token after token and no state but theirs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/testing/double_reference.h"
#include "runner/models/testing/hybrid_models.h"

namespace quire::runner::models {
namespace {

using test::Doubles, test::PatchedModelFiles;

// The model of test::MakePlamo2.
class Plamo2Reference {
 public:
  explicit Plamo2Reference(const PatchedModelFiles& files) : weights_(files), layers_(3) {}

  // Logits after the next token.
  Doubles Next(int token) {
    Doubles h = weights_.Row("model.embed_tokens.weight", token, kHidden);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string name = "model.layers.layers." + std::to_string(i) + ".";
      const Doubles x = Normed(h, name + "pre_mixer_norm", 1);
      const Doubles mixed =
          i == 1 ? Attend(x, name + "mixer.", layers_[i]) : Scan(x, name + "mixer.", layers_[i]);
      test::Add(Normed(mixed, name + "post_mixer_norm", 0.2), &h);
      const Doubles wide = weights_.Linear(Normed(h, name + "pre_mlp_norm", 1), name + "mlp.gate_up_proj");
      Doubles gated(wide.begin(), wide.begin() + static_cast<ptrdiff_t>(wide.size() / 2));
      for (size_t k = 0; k < gated.size(); ++k) gated[k] *= test::Sigmoid(gated[k]) * wide[gated.size() + k];
      test::Add(
          Normed(weights_.Linear(gated, name + "mlp.down_proj"), name + "post_mlp_norm", std::pow(5, -1.5)),
          &h);
    }
    ++position_;
    return weights_.Linear(Normed(h, "model.norm", 1), "model.embed_tokens");
  }

 private:
  static constexpr size_t kHidden = 64, kDim = 16, kHeads = 6, kInner = kHeads * kDim, kState = 10,
                          kRank = 64;
  static constexpr size_t kQueries = 4, kKeys = 2, kWindow = 16;

  struct State {
    std::vector<Doubles> columns, keys, values;
    Doubles matrix = Doubles(kInner * kState);
  };

  static Doubles Unit(const Doubles& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    Doubles y = x;
    for (double& value : y) value /= std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    return y;
  }
  static Doubles Part(const Doubles& x, size_t begin, size_t size) {
    return {x.begin() + static_cast<ptrdiff_t>(begin), x.begin() + static_cast<ptrdiff_t>(begin + size)};
  }
  Doubles Times(Doubles x, const std::string& name, double less) const {
    const Doubles weight = weights_.Values(name);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= weight[i] + less;
    return x;
  }
  Doubles Normed(const Doubles& x, const std::string& name, double less) const {
    return Times(Unit(x), name + ".weight", less);
  }

  // Normed and rotated heads, each with weights of its own.
  Doubles Heads(const Doubles& x, const std::string& name) const {
    Doubles y;
    for (size_t at = 0; at < x.size(); at += kDim) {
      const Doubles head = Unit(Part(x, at, kDim));
      y.insert(y.end(), head.begin(), head.end());
    }
    y = Times(y, name, 0);
    for (size_t at = 0; at < y.size(); at += kDim) {
      for (size_t i = 0; i < kDim / 2; ++i) {
        const double angle =
            static_cast<double>(position_) * std::pow(10000, -2.0 * static_cast<double>(i) / kDim);
        const double a = y[at + i], b = y[at + i + kDim / 2];
        y[at + i] = a * std::cos(angle) - b * std::sin(angle);
        y[at + i + kDim / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
    return y;
  }

  Doubles Attend(const Doubles& x, const std::string& name, State& state) const {
    const Doubles qkv = weights_.Linear(x, name + "qkv_proj");
    const Doubles q = Heads(Part(qkv, 0, kQueries * kDim), name + "q_weight");
    state.keys.push_back(Heads(Part(qkv, kQueries * kDim, kKeys * kDim), name + "k_weight"));
    state.values.push_back(Part(qkv, (kQueries + kKeys) * kDim, kKeys * kDim));
    const size_t first = state.keys.size() > kWindow ? state.keys.size() - kWindow : 0;
    Doubles out(kQueries * kDim);
    for (size_t head = 0; head < kQueries; ++head) {
      const size_t shared = head / (kQueries / kKeys) * kDim;
      double sum = 0;
      Doubles mean(kDim);
      for (size_t t = first; t < state.keys.size(); ++t) {
        double score = 0;
        for (size_t i = 0; i < kDim; ++i) score += q[head * kDim + i] * state.keys[t][shared + i];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(kDim)));
        sum += weight;
        for (size_t i = 0; i < kDim; ++i) mean[i] += weight * state.values[t][shared + i];
      }
      for (size_t i = 0; i < kDim; ++i) out[head * kDim + i] = mean[i] / sum;
    }
    return weights_.Linear(out, name + "o_proj");
  }

  Doubles Convolved(const State& state, const std::string& name) const {
    const Doubles taps = weights_.Values(name + "conv1d.weight");
    Doubles u(kInner);
    for (size_t k = 0; k < 4 && k < state.columns.size(); ++k) {
      const Doubles& column = state.columns[state.columns.size() - 1 - k];
      for (size_t i = 0; i < kInner; ++i) u[i] += taps[i * 4 + 3 - k] * column[i];
    }
    for (double& value : u) value *= test::Sigmoid(value);
    return u;
  }

  Doubles Scan(const Doubles& x, const std::string& name, State& state) const {
    const Doubles both = weights_.Linear(x, name + "in_proj");
    Doubles gate, column;
    for (size_t head = 0; head < kHeads; ++head) {
      for (size_t i = 0; i < kDim; ++i) {
        gate.push_back(both[head * 2 * kDim + i]);
        column.push_back(both[head * 2 * kDim + kDim + i]);
      }
    }
    state.columns.push_back(column);
    const Doubles u = Convolved(state, name);
    const Doubles inputs = weights_.Linear(u, name + "bcdt_proj");
    const Doubles b = Times(Unit(Part(inputs, 0, kState)), name + "B_norm_weight", 0);
    const Doubles c = Times(Unit(Part(inputs, kState, kState)), name + "C_norm_weight", 0);
    const Doubles small = Times(Unit(Part(inputs, 2 * kState, kRank)), name + "dt_norm_weight", 0);
    const Doubles steps = weights_.Linear(small, name + "dt_proj");
    const Doubles bias = weights_.Values(name + "dt_bias"), logs = weights_.Values(name + "A_log");
    const Doubles skip = weights_.Values(name + "D");
    Doubles y(kInner);
    for (size_t i = 0; i < kInner; ++i) {
      const size_t head = i / kDim;
      const double dt = std::log1p(std::exp(steps[head] + bias[head]));
      const double decay = std::exp(-std::exp(logs[head]) * dt);
      y[i] = skip[head] * u[i];
      for (size_t n = 0; n < kState; ++n) {
        double& s = state.matrix[i * kState + n];
        s = decay * s + dt * b[n] * u[i];
        y[i] += c[n] * s;
      }
      y[i] *= gate[i] * test::Sigmoid(gate[i]);
    }
    return weights_.Linear(y, name + "out_proj");
  }

  const test::DoubleWeights weights_;
  std::vector<State> layers_;
  int position_ = 0;
};

// More tokens than the window has.
TEST(Plamo2, LogitsAreThoseOfItsFormulas) {
  const auto model = test::LoadPatched(test::kMoeBase, test::MakePlamo2);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE((*model)->SetKvCacheType(api::KvType::kF32));
  const std::vector<TokenId> tokens = test::SomeTokens();
  const std::vector<float> logits = test::AllLogits(**model, tokens);
  PatchedModelFiles files(test::kMoeBase);  // a loaded model gives up the pages of what it has packed
  test::MakePlamo2(files);
  Plamo2Reference reference(files);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Doubles expected = reference.Next(tokens[t]);
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    EXPECT_GT(largest, 0.05);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(logits[t * expected.size() + i], expected[i], 2e-5 * largest) << t << " " << i;
    }
  }
}

}  // namespace
}  // namespace quire::runner::models
