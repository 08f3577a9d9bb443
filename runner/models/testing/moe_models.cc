#include "runner/models/testing/moe_models.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

namespace quire::runner::models::test {
namespace {

constexpr int64_t kHidden = 64, kExperts = 8, kWidth = 32, kHeads = 4, kKvHeads = 2, kDim = 32;

std::string LayerName(int layer, const std::string& part) {
  return "model.layers." + std::to_string(layer) + "." + part;
}

// Attention and feed-forward tensors of the base have other shapes.
void StartFrom(PatchedModelFiles& files, const char* model_type) {
  files.json["model_type"] = model_type;
  files.json["num_hidden_layers"] = kMoeLayers;
  files.json["head_dim"] = kDim;
  files.json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  files.json["moe_intermediate_size"] = kWidth;
  files.json["intermediate_size"] = 48;
  files.json["num_experts_per_tok"] = 2;
}

void PutDense(PatchedModelFiles& files, int layer, const std::string& name, int64_t width) {
  PutRandom(files, LayerName(layer, name + "gate_proj.weight"), {width, kHidden});
  PutRandom(files, LayerName(layer, name + "up_proj.weight"), {width, kHidden});
  PutRandom(files, LayerName(layer, name + "down_proj.weight"), {kHidden, width});
}

void PutExperts(PatchedModelFiles& files, int layer, const std::string& gate, const std::string& up,
                const std::string& down, const std::string& before) {
  for (int64_t e = 0; e < kExperts; ++e) {
    const std::string expert = before + std::to_string(e) + ".";
    PutRandom(files, LayerName(layer, expert + gate + ".weight"), {kWidth, kHidden});
    PutRandom(files, LayerName(layer, expert + up + ".weight"), {kWidth, kHidden});
    PutRandom(files, LayerName(layer, expert + down + ".weight"), {kHidden, kWidth});
  }
}

void PutUsualExperts(PatchedModelFiles& files, int layer) {
  PutRandom(files, LayerName(layer, "mlp.gate.weight"), {kExperts, kHidden});
  PutExperts(files, layer, "gate_proj", "up_proj", "down_proj", "mlp.experts.");
}

void PutAttention(PatchedModelFiles& files, int layer, bool biases) {
  const auto put = [&](const char* name, int64_t out, int64_t in) {
    PutRandom(files, LayerName(layer, std::string("self_attn.") + name + ".weight"), {out, in});
    if (biases) PutRandom(files, LayerName(layer, std::string("self_attn.") + name + ".bias"), {out});
  };
  put("q_proj", kHeads * kDim, kHidden);
  put("k_proj", kKvHeads * kDim, kHidden);
  put("v_proj", kKvHeads * kDim, kHidden);
  put("o_proj", kHidden, kHeads * kDim);
}

void PutHeadNorms(PatchedModelFiles& files, int layer) {
  for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) {
    files.AddF32(LayerName(layer, name), {kDim}, 0.9F);
  }
}

}  // namespace

void PutRandom(PatchedModelFiles& files, const std::string& name, const std::vector<int64_t>& shape) {
  uint32_t seed = 5;
  for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
  std::mt19937 random(seed);
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  std::vector<std::byte> data(static_cast<size_t>(elements) * sizeof(float));
  for (size_t at = 0; at < data.size(); at += sizeof(float)) {
    const float value = (static_cast<float>(random() % 2001) - 1000) / 4000;
    std::memcpy(&data[at], &value, sizeof(value));
  }
  files.Remove(name);
  files.Add(name, weights::DataType::kF32, shape, std::move(data));
}

void MakeDeepSeek(PatchedModelFiles& files) {
  constexpr int64_t kRank = 24, kLatent = 32, kPlain = 16, kRotary = 32, kValue = 20;
  StartFrom(files, "deepseek_v3");
  files.json.update(Json{{"q_lora_rank", kRank},
                         {"kv_lora_rank", kLatent},
                         {"qk_nope_head_dim", kPlain},
                         {"qk_rope_head_dim", kRotary},
                         {"v_head_dim", kValue},
                         {"n_routed_experts", kExperts},
                         {"n_group", 4},
                         {"topk_group", 2},
                         {"num_experts_per_tok", 3},
                         {"first_k_dense_replace", 1},
                         {"n_shared_experts", 1}});
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    const auto put = [&](const char* name, const std::vector<int64_t>& shape) {
      PutRandom(files, LayerName(layer, std::string("self_attn.") + name + ".weight"), shape);
    };
    put("q_a_proj", {kRank, kHidden});
    files.AddF32(LayerName(layer, "self_attn.q_a_layernorm.weight"), {kRank}, 1.1F);
    put("q_b_proj", {kHeads * (kPlain + kRotary), kRank});
    put("kv_a_proj_with_mqa", {kLatent + kRotary, kHidden});
    files.AddF32(LayerName(layer, "self_attn.kv_a_layernorm.weight"), {kLatent}, 0.9F);
    put("kv_b_proj", {kHeads * (kPlain + kValue), kLatent});
    put("o_proj", {kHidden, kHeads * kValue});
    if (layer == 0) {
      PutDense(files, layer, "mlp.", 48);
      continue;
    }
    PutUsualExperts(files, layer);
    PutRandom(files, LayerName(layer, "mlp.gate.e_score_correction_bias"), {kExperts});
    PutDense(files, layer, "mlp.shared_experts.", kWidth);
  }
}

void MakeDeepSeekPlain(PatchedModelFiles& files) {
  MakeDeepSeek(files);
  files.json["q_lora_rank"] = nullptr;
  files.json["norm_topk_prob"] = false;
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutRandom(files, LayerName(layer, "self_attn.q_proj.weight"), {kHeads * (16 + 32), kHidden});
  }
}

void MakeDeepSeekGguf(PatchedModelFiles& files, bool apart) {
  constexpr int64_t kPlain = 16, kValue = 20, kLatent = 32;
  // A GGUF's names for what MakeDeepSeek names as checkpoints do.
  PatchedModelFiles source(kMoeBase);
  MakeDeepSeek(source);
  files.json = {{"general.architecture", "deepseek2"},
                {"deepseek2.block_count", 1},
                {"deepseek2.context_length", 2048},
                {"deepseek2.embedding_length", 64},
                {"deepseek2.feed_forward_length", 48},
                {"deepseek2.attention.head_count", kHeads},
                {"deepseek2.attention.head_count_kv", apart ? 1 : 4},
                {"deepseek2.attention.layer_norm_rms_epsilon", 1e-6},
                {"deepseek2.attention.q_lora_rank", 24},
                {"deepseek2.attention.kv_lora_rank", kLatent},
                {"deepseek2.rope.dimension_count", 32},
                {"deepseek2.rope.freq_base", 10000.0},
                {"deepseek2.expert_count", 8},
                {"deepseek2.expert_used_count", 2},
                {"deepseek2.expert_feed_forward_length", 32},
                {"deepseek2.leading_dense_block_count", 1}};
  files.Remove("rope_freqs.weight");
  const std::string suffix = apart ? "_mla" : "";
  files.json["deepseek2.attention.key_length" + suffix] = kPlain + 32;
  files.json["deepseek2.attention.value_length" + suffix] = kValue;
  const auto put = [&](const char* from, const char* to) {
    const auto& tensor = source.Edit(std::string("model.layers.0.") + from);
    files.Remove(std::string("blk.0.") + to);
    files.Add(std::string("blk.0.") + to, tensor.type, tensor.shape,
              {tensor.data.begin(), tensor.data.end()});
  };
  put("self_attn.q_a_proj.weight", "attn_q_a.weight");
  put("self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight");
  put("self_attn.q_b_proj.weight", "attn_q_b.weight");
  put("self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight");
  put("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight");
  put("self_attn.o_proj.weight", "attn_output.weight");
  put("mlp.gate_proj.weight", "ffn_gate.weight");
  put("mlp.up_proj.weight", "ffn_up.weight");
  put("mlp.down_proj.weight", "ffn_down.weight");
  if (!apart) return put("self_attn.kv_b_proj.weight", "attn_kv_b.weight");
  const auto whole = source.Edit("model.layers.0.self_attn.kv_b_proj.weight").data;
  std::vector<std::byte> keys, values;
  for (int64_t head = 0; head < kHeads; ++head) {
    const auto row = [&](int64_t r) { return whole.data() + (head * (kPlain + kValue) + r) * kLatent * 4; };
    for (int64_t c = 0; c < kLatent; ++c) {
      for (int64_t r = 0; r < kPlain; ++r) keys.insert(keys.end(), row(r) + c * 4, row(r) + c * 4 + 4);
    }
    values.insert(values.end(), row(kPlain), row(kPlain + kValue));
  }
  files.Add("blk.0.attn_k_b.weight", weights::DataType::kF32, {kHeads, kLatent, kPlain}, keys);
  files.Add("blk.0.attn_v_b.weight", weights::DataType::kF32, {kHeads, kValue, kLatent}, values);
}

void MakeMistral4(PatchedModelFiles& files) {
  MakeDeepSeek(files);
  files.json["model_type"] = "mistral4";
  files.json["rope_parameters"] = Json{{"rope_type", "yarn"},
                                       {"rope_theta", 10000.0},
                                       {"factor", 8.0},
                                       {"mscale", 1.0},
                                       {"mscale_all_dim", 1.0},
                                       {"original_max_position_embeddings", 16},
                                       {"partial_rotary_factor", 2.0 / 3},
                                       {"llama_4_scaling_beta", 0.1}};
  for (int layer = 1; layer < kMoeLayers; ++layer) {
    files.Remove(LayerName(layer, "mlp.gate.e_score_correction_bias"));
  }
}

void MakeQwen3Moe(PatchedModelFiles& files) {
  StartFrom(files, "qwen3_moe");
  files.json["num_experts"] = kExperts;
  files.json["mlp_only_layers"] = {0};
  PutDense(files, 0, "mlp.", 48);
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/false);
    PutHeadNorms(files, layer);
    PutUsualExperts(files, layer);
  }
}

void MakeGlm4Moe(PatchedModelFiles& files) {
  MakeQwen3Moe(files);
  files.json["model_type"] = "glm4_moe";
  files.json.update(Json{{"n_routed_experts", kExperts},
                         {"n_shared_experts", 1},
                         {"first_k_dense_replace", 1},
                         {"use_qk_norm", true},
                         {"partial_rotary_factor", 0.5}});
  files.json.erase("mlp_only_layers");
  for (int layer = 1; layer < kMoeLayers; ++layer) {
    PutRandom(files, LayerName(layer, "mlp.gate.e_score_correction_bias"), {kExperts});
    PutDense(files, layer, "mlp.shared_experts.", kWidth);
  }
}

void MakeGptOss(PatchedModelFiles& files) {
  StartFrom(files, "gpt_oss");
  files.json.update(Json{{"num_local_experts", kExperts},
                         {"attention_bias", true},
                         {"intermediate_size", kWidth},
                         {"sliding_window", 9}});
  files.json.erase("moe_intermediate_size");
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/true);
    PutRandom(files, LayerName(layer, "self_attn.sinks"), {kHeads});
    PutRandom(files, LayerName(layer, "mlp.router.weight"), {kExperts, kHidden});
    PutRandom(files, LayerName(layer, "mlp.router.bias"), {kExperts});
    PutRandom(files, LayerName(layer, "mlp.experts.gate_up_proj"), {kExperts, kHidden, 2 * kWidth});
    PutRandom(files, LayerName(layer, "mlp.experts.gate_up_proj_bias"), {kExperts, 2 * kWidth});
    PutRandom(files, LayerName(layer, "mlp.experts.down_proj"), {kExperts, kWidth, kHidden});
    PutRandom(files, LayerName(layer, "mlp.experts.down_proj_bias"), {kExperts, kHidden});
  }
}

void MakeMixtral(PatchedModelFiles& files) {
  StartFrom(files, "mixtral");
  files.json["num_local_experts"] = kExperts;
  files.json["intermediate_size"] = kWidth;
  files.json.erase("moe_intermediate_size");
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/false);
    PutRandom(files, LayerName(layer, "block_sparse_moe.gate.weight"), {kExperts, kHidden});
    PutExperts(files, layer, "w1", "w3", "w2", "block_sparse_moe.experts.");
  }
}

void MakeLlama4(PatchedModelFiles& files) {
  StartFrom(files, "llama4_text");
  files.json.update(Json{{"num_local_experts", kExperts},
                         {"intermediate_size", kWidth},
                         {"intermediate_size_mlp", 48},
                         {"moe_layers", {1, 2}},
                         {"no_rope_layers", {1, 0, 1}},
                         {"attention_chunk_size", 24},
                         {"floor_scale", 8}});
  files.json.erase("moe_intermediate_size");
  PutDense(files, 0, "feed_forward.", 48);
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/false);
    if (layer == 0) continue;
    PutRandom(files, LayerName(layer, "feed_forward.router.weight"), {kExperts, kHidden});
    PutRandom(files, LayerName(layer, "feed_forward.experts.gate_up_proj"), {kExperts, kHidden, 2 * kWidth});
    PutRandom(files, LayerName(layer, "feed_forward.experts.down_proj"), {kExperts, kWidth, kHidden});
    PutDense(files, layer, "feed_forward.shared_expert.", kWidth);
  }
}

void MakeQwen2Moe(PatchedModelFiles& files) {
  StartFrom(files, "qwen2_moe");
  files.json.update(Json{{"num_experts", kExperts},
                         {"qkv_bias", false},
                         {"shared_expert_intermediate_size", 40},
                         {"decoder_sparse_step", 2}});
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/false);
    if (layer % 2 == 0) {
      PutDense(files, layer, "mlp.", 48);
      continue;
    }
    PutUsualExperts(files, layer);
    PutDense(files, layer, "mlp.shared_expert.", 40);
    PutRandom(files, LayerName(layer, "mlp.shared_expert_gate.weight"), {1, kHidden});
  }
}

void MakeErnie45Moe(PatchedModelFiles& files) {
  StartFrom(files, "ernie4_5_moe");
  files.json.erase("num_experts_per_tok");
  files.json.update(Json{{"moe_num_experts", kExperts},
                         {"moe_k", 3},
                         {"moe_num_shared_experts", 2},
                         {"moe_layer_start_index", 1},
                         {"moe_layer_end_index", 1}});
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/false);
    if (layer != 1) {
      PutDense(files, layer, "mlp.", 48);
      continue;
    }
    PutUsualExperts(files, layer);
    PutRandom(files, LayerName(layer, "mlp.moe_statics.e_score_correction_bias"), {1, kExperts});
    PutDense(files, layer, "mlp.shared_experts.", 2 * kWidth);
  }
}

void MakeHunyuanMoe(PatchedModelFiles& files) {
  StartFrom(files, "hunyuan_v1_moe");
  files.json.erase("num_experts_per_tok");
  files.json.update(Json{{"num_experts", kExperts},
                         {"moe_topk", {2, 2, 2}},
                         {"moe_intermediate_size", {kWidth, kWidth, kWidth}}});
  files.json["rope_parameters"] = {{"rope_type", "dynamic"}, {"rope_theta", 10000.0}, {"alpha", 1000.0}};
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/false);
    PutRandom(files, LayerName(layer, "self_attn.query_layernorm.weight"), {kDim});
    PutRandom(files, LayerName(layer, "self_attn.key_layernorm.weight"), {kDim});
    PutUsualExperts(files, layer);
    PutRandom(files, LayerName(layer, "mlp.gate.wg.weight"), {kExperts, kHidden});
    PutDense(files, layer, "mlp.shared_mlp.", 48);
  }
}

void MakePhiMoe(PatchedModelFiles& files) {
  MakeMixtral(files);
  files.json["model_type"] = "phimoe";
  files.json.update(Json{{"attention_bias", true}, {"lm_head_bias", true}, {"router_jitter_noise", 0.1}});
  PutRandom(files, "lm_head.bias", {512});
  PutRandom(files, "model.norm.bias", {kHidden});
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    PutAttention(files, layer, /*biases=*/true);
    PutRandom(files, LayerName(layer, "input_layernorm.bias"), {kHidden});
    PutRandom(files, LayerName(layer, "post_attention_layernorm.bias"), {kHidden});
  }
}

void MakeMiniMaxM2(PatchedModelFiles& files) {
  MakeMixtral(files);
  files.json["model_type"] = "minimax_m2";
  files.json["rotary_dim"] = kDim / 2;
  for (int layer = 0; layer < kMoeLayers; ++layer) {
    files.AddF32(LayerName(layer, "self_attn.q_norm.weight"), {kHeads * kDim}, 0.9F);
    files.AddF32(LayerName(layer, "self_attn.k_norm.weight"), {kKvHeads * kDim}, 1.1F);
    PutRandom(files, LayerName(layer, "block_sparse_moe.e_score_correction_bias"), {kExperts});
  }
}

}  // namespace quire::runner::models::test
