// Encoders of the families that encoder_families_test.cc does not compute by their formulas, with random
// weights: their hidden states are bit-identical alone and in a batch, as floats and as Q8_0.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/models/testing/encoder_bits.h"
#include "runner/models/testing/moe_models.h"
#include "runner/models/testing/patched_model_files.h"
#include "runner/weights/quantize_on_load.h"

namespace quire::runner::models {
namespace {

using test::Json;
using test::PatchedModelFiles;
using test::PutRandom;

constexpr int64_t kWidth = 64, kInner = 96, kTokens = 64;
constexpr int kDepth = 3;

Json ConfigOf(const char* type, const Json& more) {
  Json config = {{"model_type", type},          {"architectures", {"Model"}},   {"vocab_size", kTokens},
                 {"hidden_size", kWidth},       {"num_hidden_layers", kDepth},  {"num_attention_heads", 4},
                 {"intermediate_size", kInner}, {"max_position_embeddings", 64}};
  config.update(more);
  return config;
}

struct RandomEncoder {
  const char* name;
  Json config;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {}, layer = {};
  std::string layers = {};
};

using TensorRenames = std::vector<std::pair<std::string, std::string>>;

TensorRenames DistilNames() {
  return {{"attention.self.query", "attention.q_lin"},
          {"attention.self.key", "attention.k_lin"},
          {"attention.self.value", "attention.v_lin"},
          {"attention.output.dense", "attention.out_lin"},
          {"attention.output.LayerNorm", "sa_layer_norm"},
          {"intermediate.dense", "ffn.lin1"},
          {"output.dense", "ffn.lin2"},
          {"output.LayerNorm", "output_layer_norm"}};
}

TensorRenames MpnetNames() {
  return {{"attention.self.query", "attention.attn.q"},
          {"attention.self.key", "attention.attn.k"},
          {"attention.self.value", "attention.attn.v"},
          {"attention.output.dense", "attention.attn.o"},
          {"attention.output.LayerNorm", "attention.LayerNorm"}};
}

Json DistilConfig() {
  return {{"model_type", "distilbert"},   {"architectures", {"Model"}},
          {"vocab_size", kTokens},        {"dim", kWidth},
          {"n_layers", kDepth},           {"n_heads", 4},
          {"hidden_dim", kInner},         {"activation", "gelu"},
          {"max_position_embeddings", 64}};
}

Json MpnetConfig() {
  return ConfigOf("mpnet", {{"relative_attention_num_buckets", 32}, {"max_position_embeddings", 66}});
}

// The encoder with the names of another family, whose layers have the same tensors.
RandomEncoder Renamed(RandomEncoder encoder, const char* name, Json config, const TensorRenames& renames,
                      const char* layers) {
  encoder.name = name;
  encoder.config = std::move(config);
  encoder.layers = layers;
  for (auto& [tensor, shape] : encoder.layer) {
    for (const auto& [from, to] : renames) {
      if (!tensor.starts_with(from + ".")) continue;
      tensor = to + tensor.substr(from.size());
      break;
    }
  }
  return encoder;
}

std::vector<RandomEncoder> RandomEncoders() {
  RandomEncoder bert{.name = "Bert",
                     .config = ConfigOf("bert", {{"type_vocab_size", 2}}),
                     .tensors = {{"embeddings.word_embeddings.weight", {kTokens, kWidth}},
                                 {"embeddings.position_embeddings.weight", {64, kWidth}},
                                 {"embeddings.token_type_embeddings.weight", {2, kWidth}},
                                 {"embeddings.LayerNorm.weight", {kWidth}},
                                 {"embeddings.LayerNorm.bias", {kWidth}}},
                     .layer = {{"intermediate.dense.weight", {kInner, kWidth}},
                               {"intermediate.dense.bias", {kInner}},
                               {"output.dense.weight", {kWidth, kInner}}},
                     .layers = "encoder.layer."};
  for (const char* square :
       {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"}) {
    bert.layer.push_back({std::string(square) + ".weight", {kWidth, kWidth}});
    bert.layer.push_back({std::string(square) + ".bias", {kWidth}});
  }
  for (const char* vector : {"attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias",
                             "output.LayerNorm.weight", "output.LayerNorm.bias", "output.dense.bias"}) {
    bert.layer.push_back({vector, {kWidth}});
  }
  RandomEncoder roberta = bert;
  roberta.name = "XlmRoberta";
  roberta.config =
      ConfigOf("xlm-roberta", {{"type_vocab_size", 1}, {"pad_token_id", 1}, {"max_position_embeddings", 66}});
  roberta.tensors[1].second = {66, kWidth};
  roberta.tensors[2].second = {1, kWidth};
  const RandomEncoder distil =
      Renamed(bert, "DistilBert", DistilConfig(), DistilNames(), "transformer.layer.");
  RandomEncoder mpnet = Renamed(roberta, "Mpnet", MpnetConfig(), MpnetNames(), "encoder.layer.");
  mpnet.tensors.push_back({"encoder.relative_attention_bias.weight", {32, 4}});
  const RandomEncoder modern{.name = "ModernBert",
                             .config = ConfigOf("modernbert", {{"local_attention", 16}}),
                             .tensors = {{"embeddings.tok_embeddings.weight", {kTokens, kWidth}},
                                         {"embeddings.norm.weight", {kWidth}},
                                         {"final_norm.weight", {kWidth}}},
                             .layer = {{"attn_norm.weight", {kWidth}},
                                       {"attn.Wqkv.weight", {3 * kWidth, kWidth}},
                                       {"attn.Wo.weight", {kWidth, kWidth}},
                                       {"mlp_norm.weight", {kWidth}},
                                       {"mlp.Wi.weight", {2 * kInner, kWidth}},
                                       {"mlp.Wo.weight", {kWidth, kInner}}},
                             .layers = "layers."};
  RandomEncoder euro{.name = "EuroBert",
                     .config = ConfigOf("eurobert", {{"num_key_value_heads", 2}}),
                     .tensors = {{"embed_tokens.weight", {kTokens, kWidth}}, {"norm.weight", {kWidth}}},
                     .layer = {{"input_layernorm.weight", {kWidth}},
                               {"post_attention_layernorm.weight", {kWidth}},
                               {"self_attn.q_proj.weight", {kWidth, kWidth}},
                               {"self_attn.k_proj.weight", {kWidth / 2, kWidth}},
                               {"self_attn.v_proj.weight", {kWidth / 2, kWidth}},
                               {"self_attn.o_proj.weight", {kWidth, kWidth}},
                               {"mlp.gate_proj.weight", {kInner, kWidth}},
                               {"mlp.up_proj.weight", {kInner, kWidth}},
                               {"mlp.down_proj.weight", {kWidth, kInner}}},
                     .layers = "layers."};
  RandomEncoder gemma = euro;
  gemma.name = "EmbeddingGemma";
  gemma.config = ConfigOf("gemma3_text", {{"num_key_value_heads", 2},
                                          {"head_dim", 16},
                                          {"sliding_window", 16},
                                          {"use_bidirectional_attention", true}});
  for (const char* norm : {"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"}) {
    gemma.layer.push_back({norm, {kWidth}});
  }
  for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) {
    gemma.layer.push_back({norm, {16}});
  }
  return {bert, roberta, distil, mpnet, modern, euro, gemma};
}

std::shared_ptr<PatchedModelFiles> MakeEncoder(const RandomEncoder& encoder) {
  auto files = std::make_shared<PatchedModelFiles>(test::kMoeBase);
  files->json = encoder.config;
  for (const auto& [name, shape] : encoder.tensors) PutRandom(*files, name, shape);
  for (int i = 0; i < kDepth; ++i) {
    for (const auto& [name, shape] : encoder.layer) {
      PutRandom(*files, encoder.layers + std::to_string(i) + "." + name, shape);
    }
  }
  return files;
}

// The files with the layers' tensors under other names.
std::shared_ptr<PatchedModelFiles> MakeRenamed(const RandomEncoder& encoder, const Json& config,
                                               const TensorRenames& renames, const std::string& layers) {
  auto files = MakeEncoder(encoder);
  for (int i = 0; i < kDepth; ++i) {
    const std::string number = std::to_string(i) + ".";
    for (const auto& [from, to] : renames) {
      files->MoveTo(encoder.layers + number + from + ".", layers + number + to + ".");
    }
  }
  files->json = config;
  return files;
}

void ExpectSameStates(const std::shared_ptr<PatchedModelFiles>& files,
                      const std::shared_ptr<PatchedModelFiles>& others) {
  auto one = LoadEncoder(files), other = LoadEncoder(others);
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_TRUE(other) << other.error().message;
  const EncoderBatch batch = test::MixedBatch(9, static_cast<int32_t>(kTokens));
  EXPECT_EQ(test::StatesOf(**one, batch, 1), test::StatesOf(**other, batch, 1));
}

TEST(RenamedEncoders, DistilBertIsBertWithoutTypes) {
  RandomEncoder bert = RandomEncoders().front();
  bert.config["type_vocab_size"] = 0;
  ExpectSameStates(MakeEncoder(bert), MakeRenamed(bert, DistilConfig(), DistilNames(), "transformer.layer."));
}

TEST(RenamedEncoders, MpnetWithoutBiasesIsRobertaWithoutTypes) {
  RandomEncoder roberta = RandomEncoders()[1];
  roberta.config["type_vocab_size"] = 0;
  const auto mpnet = MakeRenamed(roberta, MpnetConfig(), MpnetNames(), "encoder.layer.");
  mpnet->AddF32("encoder.relative_attention_bias.weight", {32, 4}, 0);
  ExpectSameStates(MakeEncoder(roberta), mpnet);
}

class EncoderBatches : public testing::TestWithParam<RandomEncoder> {};

TEST_P(EncoderBatches, AreBitIdenticalToEachTextAlone) {
  test::ExpectSameBitsInAnyBatch(MakeEncoder(GetParam()));
}

TEST_P(EncoderBatches, AreBitIdenticalInIntegersToo) {
  const auto files = weights::QuantizeOnLoad(MakeEncoder(GetParam()), "q8_0", 2);
  ASSERT_TRUE(files) << files.error().message;
  test::ExpectSameBitsInAnyBatch(*files);
}

INSTANTIATE_TEST_SUITE_P(All, EncoderBatches, testing::ValuesIn(RandomEncoders()),
                         [](const auto& encoder) { return std::string(encoder.param.name); });

}  // namespace
}  // namespace quire::runner::models
