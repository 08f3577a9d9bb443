#include "runner/models/testing/random_encoders.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runner/models/testing/moe_models.h"

namespace quire::runner::models::test {
namespace {

using TensorShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

std::shared_ptr<PatchedModelFiles> MakeRandomEncoder(const Json& config, const std::string& layers,
                                                     const TensorShapes& tensors, const TensorShapes& layer) {
  auto files = std::make_shared<PatchedModelFiles>(kMoeBase);
  files->json = config;
  for (const auto& [name, shape] : tensors) PutRandom(*files, name, shape);
  for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i) {
    for (const auto& [name, shape] : layer) {
      PutRandom(*files, fmt::format("{}{}.{}", layers, i, name), shape);
    }
  }
  return files;
}

}  // namespace

std::shared_ptr<PatchedModelFiles> MakeLongBert(int32_t context) {
  constexpr int64_t kWidth = 64, kInner = 96;
  TensorShapes layer = {{"intermediate.dense.weight", {kInner, kWidth}},
                        {"intermediate.dense.bias", {kInner}},
                        {"output.dense.weight", {kWidth, kInner}}};
  for (const std::string square :
       {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"}) {
    layer.push_back({square + ".weight", {kWidth, kWidth}});
    layer.push_back({square + ".bias", {kWidth}});
  }
  for (const char* vector : {"attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias",
                             "output.LayerNorm.weight", "output.LayerNorm.bias", "output.dense.bias"}) {
    layer.push_back({vector, {kWidth}});
  }
  return MakeRandomEncoder({{"model_type", "bert"},
                            {"architectures", {"Model"}},
                            {"vocab_size", kRandomVocab},
                            {"hidden_size", kWidth},
                            {"num_hidden_layers", 3},
                            {"num_attention_heads", 4},
                            {"intermediate_size", kInner},
                            {"type_vocab_size", 2},
                            {"max_position_embeddings", context}},
                           "encoder.layer.",
                           {{"embeddings.word_embeddings.weight", {kRandomVocab, kWidth}},
                            {"embeddings.position_embeddings.weight", {context, kWidth}},
                            {"embeddings.token_type_embeddings.weight", {2, kWidth}},
                            {"embeddings.LayerNorm.weight", {kWidth}},
                            {"embeddings.LayerNorm.bias", {kWidth}}},
                           layer);
}

std::shared_ptr<PatchedModelFiles> MakeLongModernBert(int32_t context) {
  constexpr int64_t kWidth = 64, kInner = 96;
  return MakeRandomEncoder({{"model_type", "modernbert"},
                            {"architectures", {"Model"}},
                            {"vocab_size", kRandomVocab},
                            {"hidden_size", kWidth},
                            {"num_hidden_layers", 4},
                            {"num_attention_heads", 4},
                            {"intermediate_size", kInner},
                            {"local_attention", 128},
                            {"max_position_embeddings", context}},
                           "layers.",
                           {{"embeddings.tok_embeddings.weight", {kRandomVocab, kWidth}},
                            {"embeddings.norm.weight", {kWidth}},
                            {"final_norm.weight", {kWidth}}},
                           {{"attn_norm.weight", {kWidth}},
                            {"attn.Wqkv.weight", {3 * kWidth, kWidth}},
                            {"attn.Wo.weight", {kWidth, kWidth}},
                            {"mlp_norm.weight", {kWidth}},
                            {"mlp.Wi.weight", {2 * kInner, kWidth}},
                            {"mlp.Wo.weight", {kWidth, kInner}}});
}

std::vector<TokenId> RandomTokens(size_t count, uint32_t seed) {
  std::vector<TokenId> tokens;
  uint32_t state = seed;
  while (tokens.size() < count) {
    state = state * 1664525U + 1013904223U;
    tokens.push_back(static_cast<TokenId>((state >> 16U) % static_cast<uint32_t>(kRandomVocab)));
  }
  return tokens;
}

}  // namespace quire::runner::models::test
