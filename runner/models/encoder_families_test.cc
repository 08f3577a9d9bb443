// Encoders that have their norms behind their sublayers, with random weights, against their formulas in plain
// loops of doubles; and what their configurations may not say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "runner/models/encoder.h"
#include "runner/models/testing/encoder_bits.h"
#include "runner/models/testing/moe_models.h"
#include "runner/models/testing/patched_model_files.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::PatchedModelFiles;
using testing::HasSubstr;
using Rows = std::vector<std::vector<double>>;

constexpr int64_t kHidden = 24, kWide = 40, kVocab = 64, kHeads = 6, kDim = kHidden / kHeads, kExperts = 4;
constexpr int kLayers = 3;

// How a family names its tensors and what it computes.
struct Subject {
  const char* name;
  Json config;
  std::string layers = {}, embedding_norm = {}, qkv = {}, q = {}, k = {}, v = {}, out = {}, first_norm = {},
              second_norm = {}, up = {}, gate = {}, both = {}, down = {};
  bool biases = true, wide_bias = false, down_bias = true, gate_first = true, alibi = false, silu = false;
  bool experts = false, head_norms = false;
  double theta = 0, ntk = 0, mixed = 0;
};

Json SubjectConfig(const char* type, const Json& more) {
  Json config = {
      {"model_type", type},         {"architectures", {"Model"}},    {"vocab_size", kVocab},
      {"hidden_size", kHidden},     {"num_hidden_layers", kLayers},  {"num_attention_heads", kHeads},
      {"intermediate_size", kWide}, {"max_position_embeddings", 64}, {"type_vocab_size", 2}};
  config.update(more);
  return config;
}

Json NomicConfig(const Json& more) {
  Json config = {{"model_type", "nomic_bert"}, {"vocab_size", kVocab},      {"n_embd", kHidden},
                 {"n_layer", kLayers},         {"n_head", kHeads},          {"n_inner", kWide},
                 {"n_positions", 64},          {"type_vocab_size", 2},      {"rotary_emb_base", 1000},
                 {"prenorm", false},           {"rotary_emb_fraction", 1.0}};
  config.update(more);
  return config;
}

std::vector<Subject> Subjects() {
  const Subject nomic{.name = "Nomic",
                      .config = NomicConfig({{"activation_function", "swiglu"}}),
                      .layers = "encoder.layers.",
                      .embedding_norm = "emb_ln",
                      .qkv = "attn.Wqkv",
                      .out = "attn.out_proj",
                      .first_norm = "norm1",
                      .second_norm = "norm2",
                      .up = "mlp.fc11",
                      .gate = "mlp.fc12",
                      .down = "mlp.fc2",
                      .biases = false,
                      .down_bias = false,
                      .silu = true,
                      .theta = 1000};
  Subject uniform = nomic;
  uniform.name = "NomicOfTransformers";
  uniform.config = SubjectConfig(
      "nomic_bert",
      {{"hidden_act", "silu"}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1000.0}}}});
  uniform.layers = "layers.";
  uniform.embedding_norm = "embeddings.LayerNorm";
  uniform.qkv = "";
  uniform.q = "self_attn.q_proj", uniform.k = "self_attn.k_proj", uniform.v = "self_attn.v_proj";
  uniform.out = "self_attn.o_proj";
  uniform.first_norm = "post_attention_layernorm", uniform.second_norm = "post_mlp_layernorm";
  uniform.up = "mlp.up_proj", uniform.gate = "mlp.gate_proj", uniform.down = "mlp.down_proj";
  Subject experts = nomic;
  experts.name = "NomicOfExperts";
  experts.config = NomicConfig({{"activation_function", "gelu"},
                                {"qkv_proj_bias", true},
                                {"mlp_fc1_bias", true},
                                {"mlp_fc2_bias", true},
                                {"moe_every_n_layers", 2},
                                {"num_experts", kExperts},
                                {"moe_top_k", 2},
                                {"moe_normalize_expert_weights", false}});
  experts.biases = experts.wide_bias = experts.down_bias = experts.experts = true;
  experts.silu = false;
  experts.up = "mlp.fc1", experts.gate = "";
  const Subject jina{.name = "Jina",
                     .config = SubjectConfig("bert", {{"position_embedding_type", "alibi"},
                                                      {"hidden_act", "gelu"},
                                                      {"feed_forward_type", "geglu"},
                                                      {"emb_pooler", "mean"}}),
                     .layers = "encoder.layer.",
                     .embedding_norm = "embeddings.LayerNorm",
                     .q = "attention.self.query",
                     .k = "attention.self.key",
                     .v = "attention.self.value",
                     .out = "attention.output.dense",
                     .first_norm = "attention.output.LayerNorm",
                     .second_norm = "mlp.layernorm",
                     .both = "mlp.gated_layers",
                     .down = "mlp.wo",
                     .alibi = true};
  Subject code = jina;
  code.name = "JinaForCode";
  code.second_norm = "layer_norm_2", code.both = "mlp.up_gated_layer", code.down = "mlp.down_layer";
  code.gate_first = false;
  code.head_norms = true;
  const Subject gte{.name = "Gte",
                    .config = SubjectConfig("new", {{"hidden_act", "gelu"},
                                                    {"rope_theta", 500.0},
                                                    {"position_embedding_type", "rope"},
                                                    {"pack_qkv", true}}),
                    .layers = "encoder.layer.",
                    .embedding_norm = "embeddings.LayerNorm",
                    .qkv = "attention.qkv_proj",
                    .out = "attention.o_proj",
                    .first_norm = "attn_ln",
                    .second_norm = "mlp_ln",
                    .both = "mlp.up_gate_proj",
                    .down = "mlp.down_proj",
                    .gate_first = false,
                    .theta = 500};
  Subject stretched = gte;
  stretched.name = "GteStretched";
  stretched.config["rope_scaling"] = {{"type", "ntk"}, {"factor", 8.0}};
  stretched.ntk = 8;
  Subject mixed = gte;
  mixed.name = "GteMixed";
  mixed.config["rope_scaling"] = {{"type", "ntk"}, {"factor", 2.0}, {"mixed_b", 0.5}};
  mixed.ntk = 2, mixed.mixed = 0.5;
  return {nomic, uniform, experts, jina, code, gte, stretched, mixed};
}

std::shared_ptr<PatchedModelFiles> Make(const Subject& subject) {
  auto files = std::make_shared<PatchedModelFiles>("tests/data/models/llama");
  files->json = subject.config;
  const auto put = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    if (name.ends_with(".")) return;
    test::PutRandom(*files, name + ".weight", {out, in});
    if (bias) test::PutRandom(*files, name + ".bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    test::PutRandom(*files, name + ".weight", {kHidden});
    test::PutRandom(*files, name + ".bias", {kHidden});
  };
  put("embeddings.word_embeddings", kVocab, kHidden, false);
  put("embeddings.token_type_embeddings", 2, kHidden, false);
  norm(subject.embedding_norm);
  for (int i = 0; i < kLayers; ++i) {
    const std::string at = subject.layers + std::to_string(i) + ".";
    put(at + subject.qkv, 3 * kHidden, kHidden, subject.biases);
    for (const std::string& one : {subject.q, subject.k, subject.v})
      put(at + one, kHidden, kHidden, subject.biases);
    put(at + subject.out, kHidden, kHidden, subject.biases);
    norm(at + subject.first_norm);
    norm(at + subject.second_norm);
    if (subject.head_norms) {
      norm(at + "attention.self.layer_norm_q");
      norm(at + "attention.self.layer_norm_k");
      norm(at + "layer_norm_1");
    }
    if (subject.experts && i % 2 == 1) {
      put(at + "mlp.router.layer", kExperts, kHidden, false);
      test::PutRandom(*files, at + "mlp.experts.mlp.w1", {kExperts * kWide, kHidden});
      test::PutRandom(*files, at + "mlp.experts.mlp.w2", {kExperts * kWide, kHidden});
      test::PutRandom(*files, at + "mlp.experts.bias", {kHidden});
      continue;
    }
    put(at + subject.up, kWide, kHidden, subject.wide_bias);
    put(at + subject.gate, kWide, kHidden, subject.wide_bias);
    put(at + subject.both, 2 * kWide, kHidden, subject.wide_bias);
    put(at + subject.down, kHidden, kWide, subject.down_bias);
  }
  return files;
}

// The family's formulas, without any of the product's code.
class Plain {
 public:
  Plain(const Subject& subject, const PatchedModelFiles& files) : subject_(subject), files_(files) {}

  Rows Run(const std::vector<TokenId>& tokens, const std::vector<int32_t>& types) const {
    const std::vector<double> words = Read("embeddings.word_embeddings.weight");
    const std::vector<double> kinds = Read("embeddings.token_type_embeddings.weight");
    Rows x(tokens.size(), std::vector<double>(kHidden));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < kHidden; ++i) {
        x[t][i] = words[static_cast<size_t>(tokens[t]) * kHidden + i] +
                  kinds[static_cast<size_t>(types[t]) * kHidden + i];
      }
    }
    x = NormOf(x, subject_.embedding_norm);
    for (int i = 0; i < kLayers; ++i) {
      const std::string at = subject_.layers + std::to_string(i) + ".";
      const Rows before = x;
      x = NormOf(Sum(x, Linear(Attend(x, at), at + subject_.out)), at + subject_.first_norm);
      if (subject_.head_norms) x = NormOf(Sum(before, x), at + "layer_norm_1");
      x = NormOf(Sum(x, FeedForward(x, at, subject_.experts && i % 2 == 1)), at + subject_.second_norm);
    }
    return x;
  }

 private:
  std::vector<double> Read(const std::string& name) const {
    const weights::Tensor* tensor = files_.Find(name);
    if (tensor == nullptr) return {};
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return {values.begin(), values.end()};
  }
  static Rows Sum(Rows a, const Rows& b) {
    for (size_t t = 0; t < a.size(); ++t) {
      for (size_t i = 0; i < a[t].size(); ++i) a[t][i] += b[t][i];
    }
    return a;
  }
  static std::vector<double> Times(const std::vector<double>& w, size_t first, size_t out,
                                   const std::vector<double>& x) {
    std::vector<double> y(out);
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[(first + o) * x.size() + i] * x[i];
    }
    return y;
  }
  Rows Linear(const Rows& x, const std::string& name) const {
    const std::vector<double> w = Read(name + ".weight"), bias = Read(name + ".bias");
    Rows y;
    for (const std::vector<double>& row : x) {
      y.push_back(Times(w, 0, w.size() / row.size(), row));
      for (size_t i = 0; i < bias.size(); ++i) y.back()[i] += bias[i];
    }
    return y;
  }
  Rows NormOf(Rows x, const std::string& name) const {
    const std::vector<double> w = Read(name + ".weight"), bias = Read(name + ".bias");
    for (std::vector<double>& row : x) {
      const auto size = static_cast<double>(row.size());
      const double mean = std::accumulate(row.begin(), row.end(), 0.0) / size;
      double variance = 0;
      for (const double value : row) variance += (value - mean) * (value - mean) / size;
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = (row[i] - mean) / std::sqrt(variance + 1e-12) * w[i] + bias[i];
    }
    return x;
  }
  double Frequency(size_t pair) const {
    const double at = static_cast<double>(pair), dims = kDim;
    if (subject_.mixed > 0) {
      const double a = std::log(subject_.ntk) / std::pow(dims / 2, subject_.mixed);
      return std::pow(subject_.theta, -2 * at / dims) / std::exp(a * std::pow(at + 1, subject_.mixed));
    }
    const double factor = subject_.ntk > 0 ? subject_.ntk : 1;
    return std::pow(subject_.theta * factor, -2 * at / dims) / std::pow(factor, 2 / dims);
  }
  void Rotate(Rows& x) const {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < kHeads; ++h) {
        for (size_t i = 0; i < kDim / 2; ++i) {
          const double angle = static_cast<double>(t) * Frequency(i);
          double &a = x[t][h * kDim + i], &b = x[t][h * kDim + kDim / 2 + i];
          const double left = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = left;
        }
      }
    }
  }
  // ALiBi of 6 heads: 1/4, 1/16, ... of the 4 below, then every other one of 8.
  static double Slope(size_t head) {
    return head < 4 ? std::exp2(-2.0 * static_cast<double>(head + 1)) : head == 4 ? 0.5 : 0.125;
  }

  Rows Attend(const Rows& x, const std::string& at) const {
    Rows q, k, v;
    if (!subject_.qkv.empty()) {
      for (const std::vector<double>& row : Linear(x, at + subject_.qkv)) {
        q.emplace_back(row.begin(), row.begin() + kHidden);
        k.emplace_back(row.begin() + kHidden, row.begin() + 2 * kHidden);
        v.emplace_back(row.begin() + 2 * kHidden, row.end());
      }
    } else {
      q = Linear(x, at + subject_.q), k = Linear(x, at + subject_.k), v = Linear(x, at + subject_.v);
    }
    if (subject_.head_norms) {
      q = NormOf(q, at + "attention.self.layer_norm_q"), k = NormOf(k, at + "attention.self.layer_norm_k");
    }
    if (subject_.theta > 0) {
      Rotate(q);
      Rotate(k);
    }
    Rows y(x.size(), std::vector<double>(kHidden));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < kHeads; ++h) {
        std::vector<double> weight(x.size());
        double all = 0;
        for (size_t s = 0; s < x.size(); ++s) {
          double score = 0;
          for (size_t i = h * kDim; i < (h + 1) * kDim; ++i) score += q[t][i] * k[s][i];
          const double distance = std::abs(static_cast<double>(t) - static_cast<double>(s));
          weight[s] = std::exp(score / std::sqrt(double{kDim}) - (subject_.alibi ? Slope(h) * distance : 0));
          all += weight[s];
        }
        for (size_t s = 0; s < x.size(); ++s) {
          for (size_t i = h * kDim; i < (h + 1) * kDim; ++i) y[t][i] += weight[s] / all * v[s][i];
        }
      }
    }
    return y;
  }
  double Activated(double x) const {
    return subject_.silu ? x / (1 + std::exp(-x)) : x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
  }
  Rows FeedForward(const Rows& x, const std::string& at, bool experts) const {
    if (experts) return Experts(x, at);
    Rows wide;
    if (!subject_.both.empty()) {
      for (const std::vector<double>& row : Linear(x, at + subject_.both)) {
        wide.emplace_back(kWide);
        for (size_t i = 0; i < kWide; ++i) {
          const double first = row[i], second = row[kWide + i];
          wide.back()[i] = subject_.gate_first ? Activated(first) * second : first * Activated(second);
        }
      }
    } else {
      wide = Linear(x, at + subject_.up);
      const Rows gate = subject_.gate.empty() ? wide : Linear(x, at + subject_.gate);
      for (size_t t = 0; t < wide.size(); ++t) {
        for (size_t i = 0; i < kWide; ++i) {
          wide[t][i] = Activated(gate[t][i]) * (subject_.gate.empty() ? 1 : wide[t][i]);
        }
      }
    }
    return Linear(wide, at + subject_.down);
  }
  Rows Experts(const Rows& x, const std::string& at) const {
    const std::vector<double> w1 = Read(at + "mlp.experts.mlp.w1"), w2 = Read(at + "mlp.experts.mlp.w2"),
                              bias = Read(at + "mlp.experts.bias");
    Rows y;
    for (const std::vector<double>& row : x) {
      std::vector<double> share = Linear({row}, at + "mlp.router.layer").front();
      double all = 0;
      for (double& one : share) all += one = std::exp(one);
      std::vector<double> sorted = share;
      std::ranges::sort(sorted, std::greater());
      y.push_back(bias);
      for (size_t e = 0; e < kExperts; ++e) {
        if (share[e] < sorted[1]) continue;
        std::vector<double> wide = Times(w1, e * kWide, kWide, row);
        for (double& one : wide) one = Activated(one);
        for (size_t i = 0; i < kWide; ++i) {
          for (size_t o = 0; o < kHidden; ++o) {
            y.back()[o] += share[e] / all * wide[i] * w2[(e * kWide + i) * kHidden + o];
          }
        }
      }
    }
    return y;
  }

  const Subject& subject_;
  const PatchedModelFiles& files_;
};

class EncoderFamilies : public testing::TestWithParam<Subject> {};

TEST_P(EncoderFamilies, ComputeTheirFormulas) {
  const auto files = Make(GetParam());
  auto encoder = LoadEncoder(files);
  ASSERT_TRUE(encoder) << encoder.error().message;
  EncoderBatch batch{.tokens = {}, .types = {}, .row_begin = {0, 3, 40}};
  for (int32_t i = 0; i < 40; ++i) {
    batch.tokens.push_back(i * 37 % static_cast<int32_t>(kVocab));
    batch.types.push_back(i % 7 == 6 ? 1 : 0);
  }
  ThreadPool pool(2);
  std::vector<float> hidden(batch.tokens.size() * kHidden);
  (*encoder)->Forward(batch, pool, hidden);
  const Plain plain(GetParam(), *files);
  for (size_t text = 0; text < 2; ++text) {
    const auto begin = batch.row_begin[text], end = batch.row_begin[text + 1];
    const Rows expected = plain.Run({batch.tokens.begin() + begin, batch.tokens.begin() + end},
                                    {batch.types.begin() + begin, batch.types.begin() + end});
    double most = 0;
    for (size_t t = 0; t < expected.size(); ++t) {
      for (size_t i = 0; i < kHidden; ++i) {
        most = std::max(
            most, std::abs(expected[t][i] - double{hidden[(static_cast<size_t>(begin) + t) * kHidden + i]}));
      }
    }
    EXPECT_LT(most, 5e-6);
  }
}

TEST_P(EncoderFamilies, AreBitIdenticalAloneAndInABatch) { test::ExpectSameBitsInAnyBatch(Make(GetParam())); }

INSTANTIATE_TEST_SUITE_P(All, EncoderFamilies, testing::ValuesIn(Subjects()),
                         [](const auto& subject) { return std::string(subject.param.name); });

TEST(EncoderConfigurations, RefuseByNameWhatIsNotImplemented) {
  struct Refusal {
    const char* subject;
    const char* key;
    Json value;
    const char* message;
  };
  const Refusal refusals[] = {
      {"Nomic", "prenorm", true, "prenorm: only false is supported"},
      {"Nomic", "causal", true, "causal: only false is supported"},
      {"Gte", "is_causal", true, "is_causal: only false is supported"},
      {"Nomic", "rotary_emb_fraction", 0.5, "rotary_emb_fraction: only 1 is supported"},
      {"Nomic", "activation_function", "relu6", "\"relu6\" is not supported"},
      {"Nomic", "n_positions", 0, "n_positions is 0"},
      {"NomicOfExperts", "moe_normalize_expert_weights", true, "moe_normalize_expert_weights: only false"},
      {"NomicOfExperts", "moe_top_k", 5, "moe_top_k is 5"},
      {"NomicOfExperts", "num_experts", 3, "mlp.router.layer.weight has the shape"},
      {"Jina", "feed_forward_type", "original", "only geglu and reglu"},
      {"Jina", "hidden_act", "relu", "hidden_act: only gelu is supported"},
      {"Jina", "an_unknown_key", 3, "an_unknown_key"},
      {"Gte", "layer_norm_type", "rms_norm", "layer_norm_type: only layer_norm"},
      {"Gte", "logn_attention_scale", true, "logn_attention_scale: only false"},
      {"Gte", "position_embedding_type", "absolute", "position_embedding_type: only rope"},
      {"GteStretched",
       "rope_scaling",
       {{"type", "dynamic"}, {"factor", 2.0}},
       "\"dynamic\" is not supported"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(std::string(refusal.subject) + ": " + refusal.key + " = " + refusal.value.dump());
    for (const Subject& subject : Subjects()) {
      if (std::string(subject.name) != refusal.subject) continue;
      const auto files = Make(subject);
      files->json[refusal.key] = refusal.value;
      const auto encoder = LoadEncoder(files);
      ASSERT_FALSE(encoder);
      EXPECT_EQ(encoder.error().code, api::ErrorCode::kBadModel);
      EXPECT_THAT(encoder.error().message, HasSubstr(refusal.message));
    }
  }
}

TEST(EncoderConfigurations, HeadsOfSeveralLabelsAreRefusedByName) {
  const std::vector<Subject> subjects = Subjects();
  const auto gte =
      std::ranges::find_if(subjects, [](const Subject& one) { return std::string(one.name) == "Gte"; });
  const auto files = Make(*gte);
  files->json["architectures"] = {"NewForSequenceClassification"};
  files->json["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  const auto encoder = LoadEncoder(files);
  ASSERT_FALSE(encoder);
  EXPECT_THAT(encoder.error().message, HasSubstr("id2label: a classification head of 3 labels"));
}

TEST(EncoderConfigurations, TheOneRowOfAHeadMayHaveLostADimension) {
  const std::vector<Subject> subjects = Subjects();
  const auto gte =
      std::ranges::find_if(subjects, [](const Subject& one) { return std::string(one.name) == "Gte"; });
  const auto files = Make(*gte);
  files->json["architectures"] = {"NewForSequenceClassification"};
  test::PutRandom(*files, "new.pooler.dense.weight", {kHidden, kHidden});
  test::PutRandom(*files, "new.pooler.dense.bias", {kHidden});
  test::PutRandom(*files, "classifier.weight", {kHidden});
  test::PutRandom(*files, "classifier.bias", {1});
  const auto encoder = LoadEncoder(files);
  ASSERT_TRUE(encoder) << encoder.error().message;
  EXPECT_TRUE((*encoder)->ranks());
}

TEST(EncoderConfigurations, TheKeysOfACrossEncoderAreAccepted) {
  for (const Subject& subject : Subjects()) {
    const auto files = Make(subject);
    files->json["sentence_transformers"] = {{"activation_fn", "torch.nn.modules.activation.Sigmoid"},
                                            {"version", "5.0.0"}};
    files->json["sbert_ce_default_activation_function"] = "torch.nn.modules.linear.Identity";
    const auto encoder = LoadEncoder(files);
    EXPECT_TRUE(encoder) << subject.name << ": " << encoder.error().message;
  }
}

}  // namespace
}  // namespace quire::runner::models
