// RWKV-7 against its formulas, written out in double, with token after token and no state but theirs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/testing/double_reference.h"
#include "runner/models/testing/hybrid_models.h"

namespace quire::runner::models {
namespace {

using test::Add, test::AllLogits, test::Doubles, test::PatchedModelFiles, test::Sigmoid, test::SomeTokens;

// The model of test::MakeRwkv7.
class Reference {
 public:
  explicit Reference(const PatchedModelFiles& files) : weights_(files), layers_(3) {}

  // Logits after the next token.
  Doubles Next(int token) {
    Doubles h = weights_.Row("model.embeddings.weight", token, kHidden);
    h = LayerNorm(h, "model.layers.0.pre_norm", 1e-5);
    Doubles first;
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string name = "model.layers." + std::to_string(i) + ".";
      Add(TimeMix(LayerNorm(h, name + "attn_norm", 1e-5), name + "attn.", layers_[i], &first), &h);
      Add(ChannelMix(LayerNorm(h, name + "ffn_norm", 1e-5), name + "ffn.", layers_[i]), &h);
    }
    return weights_.Linear(LayerNorm(h, "model.norm", 1e-5), "model.embeddings");
  }

 private:
  static constexpr size_t kHidden = 64, kDim = 16;

  struct State {
    Doubles time = Doubles(kHidden), channel = Doubles(kHidden), matrix = Doubles(kHidden * kDim);
  };

  static Doubles Centered(const Doubles& x, size_t group, double eps) {
    Doubles y = x;
    for (size_t at = 0; at < x.size(); at += group) {
      double mean = 0, variance = 0;
      for (size_t i = at; i < at + group; ++i) mean += x[i] / static_cast<double>(group);
      for (size_t i = at; i < at + group; ++i)
        variance += std::pow(x[i] - mean, 2) / static_cast<double>(group);
      for (size_t i = at; i < at + group; ++i) y[i] = (x[i] - mean) / std::sqrt(variance + eps);
    }
    return y;
  }
  Doubles LayerNorm(const Doubles& x, const std::string& name, double eps, size_t group = kHidden) const {
    const Doubles weight = weights_.Values(name + ".weight"), bias = weights_.Values(name + ".bias");
    Doubles y = Centered(x, group, eps);
    for (size_t i = 0; i < y.size(); ++i) y[i] = y[i] * weight[i] + bias[i];
    return y;
  }
  Doubles LowRank(const Doubles& x, const std::string& name, double (*activate)(double)) const {
    Doubles low = weights_.Linear(x, name + "_lora.lora.0");
    for (double& value : low) value = activate(value);
    Doubles y = weights_.Linear(low, name + "_lora.lora.2");
    if (weights_.Has(name + "_lora.lora.2.bias")) Add(weights_.Values(name + "_lora.lora.2.bias"), &y);
    return y;
  }
  Doubles Shifted(const Doubles& x, const Doubles& before, const std::string& name) const {
    const Doubles weight = weights_.Values(name);
    Doubles y = x;
    for (size_t i = 0; i < y.size(); ++i) y[i] += (before[i] - x[i]) * weight[i];
    return y;
  }

  Doubles TimeMix(const Doubles& x, const std::string& name, State& state, Doubles* first) const {
    const auto plain = [](double v) { return v; };
    const auto shifted = [&](const char* part) { return Shifted(x, state.time, name + "x_" + part); };
    const Doubles r = weights_.Linear(shifted("r"), name + "r_proj"),
                  gate = LowRank(shifted("g"), name + "g", Sigmoid);
    Doubles w = LowRank(shifted("w"), name + "w", [](double v) { return std::tanh(v); });
    Doubles k = weights_.Linear(shifted("k"), name + "k_proj"),
            v = weights_.Linear(shifted("v"), name + "v_proj");
    Doubles a = LowRank(shifted("a"), name + "a", plain);
    if (first->empty()) {
      *first = v;
    } else {
      const Doubles mix = LowRank(shifted("v"), name + "v", plain);
      for (size_t i = 0; i < v.size(); ++i) v[i] += ((*first)[i] - v[i]) * Sigmoid(mix[i]);
    }
    const Doubles removal = weights_.Values(name + "k_k"), rate = weights_.Values(name + "k_a"),
                  bonus = weights_.Values(name + "r_k");
    Doubles removed = k;
    for (size_t i = 0; i < kHidden; ++i) {
      w[i] = std::exp(-std::exp(-0.5) * Sigmoid(w[i]));
      a[i] = Sigmoid(a[i]);
      removed[i] *= removal[i];
      k[i] *= 1 + (a[i] - 1) * rate[i];
    }
    Doubles out(kHidden), extra(kHidden);
    for (size_t head = 0; head < kHidden; head += kDim) {
      double squares = 0, product = 0;
      for (size_t i = head; i < head + kDim; ++i) {
        squares += removed[i] * removed[i];
        product += r[i] * k[i] * bonus[i];
      }
      for (size_t i = head; i < head + kDim; ++i) {
        removed[i] /= std::sqrt(squares);
        extra[i] = product * v[i];
      }
      for (size_t i = head; i < head + kDim; ++i) {
        double* const row = &state.matrix[i * kDim];
        double told = 0;
        for (size_t j = 0; j < kDim; ++j) told += row[j] * removed[head + j];
        for (size_t j = 0; j < kDim; ++j) {
          row[j] = row[j] * w[head + j] - told * removed[head + j] * a[head + j] + v[i] * k[head + j];
          out[i] += row[j] * r[head + j];
        }
      }
    }
    out = LayerNorm(out, name + "g_norm", kDim * 1e-5, kDim);
    for (size_t i = 0; i < kHidden; ++i) out[i] = (out[i] + extra[i]) * gate[i];
    state.time = x;
    return weights_.Linear(out, name + "o_proj");
  }

  Doubles ChannelMix(const Doubles& x, const std::string& name, State& state) const {
    Doubles wide = weights_.Linear(Shifted(x, state.channel, name + "x_k"), name + "key");
    for (double& value : wide) value = value > 0 ? value * value : 0;
    state.channel = x;
    return weights_.Linear(wide, name + "value");
  }

  const test::DoubleWeights weights_;
  std::vector<State> layers_;
};

TEST(Rwkv7, LogitsAreThoseOfItsFormulas) {
  const auto model = test::LoadPatched(test::kMoeBase, test::MakeRwkv7);
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<TokenId> tokens = SomeTokens();
  const std::vector<float> logits = AllLogits(**model, tokens);
  PatchedModelFiles files(test::kMoeBase);  // a loaded model gives up the pages of what it has packed
  test::MakeRwkv7(files);
  Reference reference(files);
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

// An older checkpoint has the six shifts in one tensor.
TEST(Rwkv7, ShiftsMayBeStoredTogether) {
  const auto apart = test::LoadPatched(test::kMoeBase, test::MakeRwkv7).value();
  const auto together = test::LoadPatched(test::kMoeBase, [](PatchedModelFiles& files) {
    test::MakeRwkv7(files);
    for (int i = 0; i < 3; ++i) {
      const std::string name = "model.layers." + std::to_string(i) + ".attn.x_";
      std::vector<std::byte> all;
      for (const char* part : {"r", "w", "k", "v", "a", "g"}) {
        const auto data = files.Find(name + part)->data;
        all.insert(all.end(), data.begin(), data.end());
        files.Remove(name + part);
      }
      files.Add(name + "x", weights::DataType::kF32, {6, 64}, std::move(all));
    }
  });
  ASSERT_TRUE(together) << together.error().message;
  EXPECT_EQ(AllLogits(**together, SomeTokens()), AllLogits(*apart, SomeTokens()));
}

// Fused kernels of the checkpoint's own code scale keys by 1 / sqrt(sum of squares + 1e-6).
TEST(Rwkv7, FusedNormsHaveTheirOwnLengthOfKeys) {
  const auto plain = test::LoadPatched(test::kMoeBase, test::MakeRwkv7).value();
  const auto fused = test::LoadPatched(test::kMoeBase, [](PatchedModelFiles& files) {
    test::MakeRwkv7(files);
    files.json["fuse_norm"] = true;
  });
  ASSERT_TRUE(fused) << fused.error().message;
  EXPECT_NE(AllLogits(**fused, SomeTokens()), AllLogits(*plain, SomeTokens()));
}

}  // namespace
}  // namespace quire::runner::models
