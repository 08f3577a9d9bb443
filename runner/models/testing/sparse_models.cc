#include "runner/models/testing/sparse_models.h"

#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/testing/moe_models.h"

namespace quire::runner::models::test {
namespace {

constexpr int64_t kSparseHidden = 64, kQueryRank = 24, kIndexHeads = 5, kIndexDim = 40;

std::string Name(int layer, const std::string& part) {
  return "model.layers." + std::to_string(layer) + ".self_attn." + part;
}

void PutIndexer(PatchedModelFiles& files, int layer) {
  PutRandom(files, Name(layer, "indexer.wq_b.weight"), {kIndexHeads * kIndexDim, kQueryRank});
  PutRandom(files, Name(layer, "indexer.wk.weight"), {kIndexDim, kSparseHidden});
  PutRandom(files, Name(layer, "indexer.weights_proj.weight"), {kIndexHeads, kSparseHidden});
  files.AddF32(Name(layer, "indexer.k_norm.weight"), {kIndexDim}, 1.1F);
  PutRandom(files, Name(layer, "indexer.k_norm.bias"), {kIndexDim});
}

}  // namespace

void MakeDeepSeekV32(PatchedModelFiles& files) {
  MakeDeepSeek(files);
  files.json["model_type"] = "deepseek_v32";
  files.json.update(
      Json{{"index_n_heads", kIndexHeads}, {"index_head_dim", kIndexDim}, {"index_topk", kIndexBest}});
  for (int layer = 0; layer < kMoeLayers; ++layer) PutIndexer(files, layer);
}

void MakeGlmMoeDsa(PatchedModelFiles& files) {
  MakeDeepSeekV32(files);
  files.json["model_type"] = "glm_moe_dsa";
  files.json["indexer_types"] = {"full", "shared", "full"};
}

void MakeMiniMaxM3(PatchedModelFiles& files) {
  MakeMixtral(files);
  files.json["model_type"] = "minimax_m3_vl_text";
  files.json.update(Json{{"rotary_dim", 16},
                         {"index_n_heads", 2},
                         {"index_head_dim", kIndexDim},
                         {"index_block_size", 6},
                         {"index_topk_blocks", 3},
                         {"layer_types", {"full_attention", "minimax_m3_sparse", "minimax_m3_sparse"}},
                         {"moe_layer_freq", {0, 1, 1}},
                         {"dense_intermediate_size", 48},
                         {"shared_intermediate_size", 40},
                         {"swiglu_limit", 0.5}});
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    files.AddF32(Name(layer, "q_norm.weight"), {32}, 0.1F);
    files.AddF32(Name(layer, "k_norm.weight"), {32}, -0.1F);
    const std::string block = "model.layers." + std::to_string(layer) + ".";
    const std::string mlp = block + (layer == 0 ? "mlp." : "block_sparse_moe.shared_experts.");
    const int64_t width = layer == 0 ? 48 : 40;
    PutRandom(files, mlp + "gate_proj.weight", {width, kSparseHidden});
    PutRandom(files, mlp + "up_proj.weight", {width, kSparseHidden});
    PutRandom(files, mlp + "down_proj.weight", {kSparseHidden, width});
    if (layer == 0) continue;
    PutRandom(files, block + "block_sparse_moe.e_score_correction_bias", {8});
    PutRandom(files, Name(layer, "index_q_proj.weight"), {2 * kIndexDim, kSparseHidden});
    PutRandom(files, Name(layer, "index_k_proj.weight"), {kIndexDim, kSparseHidden});
    files.AddF32(Name(layer, "index_q_norm.weight"), {kIndexDim}, 0.2F);
    files.AddF32(Name(layer, "index_k_norm.weight"), {kIndexDim}, 0.1F);
  }
}

}  // namespace quire::runner::models::test
