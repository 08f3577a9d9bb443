// Hybrid models with blocks of their own.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/models/testing/hybrid_models.h"
#include "runner/models/testing/layer_tensors.h"

namespace quire::runner::models::test {

void MakeMiniMax(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  constexpr int64_t kInner = kQueryHeads * kHeadDim;
  Configure(files, "minimax", kLayers, AttentionKeys());
  files.json.update(Json{{"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                         {"head_dim", kHeadDim},
                         {"sliding_window", 16},
                         {"block_size", 8},
                         {"num_local_experts", kHybridExperts},
                         {"num_experts_per_tok", 2},
                         {"intermediate_size", kExpertWidth},
                         {"full_attn_alpha_factor", 1.25},
                         {"full_attn_beta_factor", 0.75},
                         {"linear_attn_alpha_factor", 0.8},
                         {"linear_attn_beta_factor", 1.5},
                         {"mlp_alpha_factor", 0.9},
                         {"mlp_beta_factor", 1.1}});
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    if (i == 1) {
      layer.Attention("self_attn", false);
    } else {
      layer.Linear("self_attn.qkv_proj", 3 * kInner, kHiddenSize);
      layer.Linear("self_attn.output_gate", kInner, kHiddenSize);
      layer.Linear("self_attn.out_proj", kHiddenSize, kInner);
      layer.Norm("self_attn.norm", kInner);
    }
    layer.Linear("block_sparse_moe.gate", kHybridExperts, kHiddenSize);
    for (int64_t e = 0; e < kHybridExperts; ++e) {
      const std::string expert = "block_sparse_moe.experts." + std::to_string(e);
      layer.Linear(expert + ".w1", kExpertWidth, kHiddenSize);
      layer.Linear(expert + ".w2", kHiddenSize, kExpertWidth);
      layer.Linear(expert + ".w3", kExpertWidth, kHiddenSize);
    }
  }
}

void MakeKimiLinear(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  constexpr int64_t kHeads = 4, kDim = 12, kLatent = 20, kPlain = 10, kRotary = 4, kValue = 14;
  Configure(files, "kimi_linear", kLayers,
            {{"num_attention_heads", kHeads},
             {"num_key_value_heads", kHeads},
             {"model_max_length", 512},
             {"rms_norm_eps", 1e-5},
             {"mla_use_nope", true},
             {"q_lora_rank", nullptr},
             {"kv_lora_rank", kLatent},
             {"qk_nope_head_dim", kPlain},
             {"qk_rope_head_dim", kRotary},
             {"v_head_dim", kValue},
             {"linear_attn_config",
              {{"full_attn_layers", {2}},
               {"kda_layers", {1, 3}},
               {"head_dim", kDim},
               {"num_heads", kHeads},
               {"short_conv_kernel_size", 4}}},
             {"intermediate_size", kMlpWidth},
             {"first_k_dense_replace", 1},
             {"moe_layer_freq", 1},
             {"num_experts", kHybridExperts},
             {"num_experts_per_token", 2},
             {"moe_intermediate_size", kExpertWidth},
             {"moe_renormalize", true},
             {"moe_router_activation_func", "sigmoid"},
             {"num_expert_group", 1},
             {"topk_group", 1},
             {"use_grouped_topk", true},
             {"num_shared_experts", 1},
             {"num_nextn_predict_layers", 0},
             {"routed_scaling_factor", 2.0}});
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    const std::string attention = "self_attn.", moe = "block_sparse_moe.";
    if (i == 1) {
      layer.Linear(attention + "q_proj", kHeads * (kPlain + kRotary), kHiddenSize);
      layer.Linear(attention + "kv_a_proj_with_mqa", kLatent + kRotary, kHiddenSize);
      layer.Norm(attention + "kv_a_layernorm", kLatent);
      layer.Linear(attention + "kv_b_proj", kHeads * (kPlain + kValue), kLatent);
      layer.Linear(attention + "o_proj", kHiddenSize, kHeads * kValue);
    } else {
      for (const char* part : {"q", "k", "v"}) {
        layer.Linear(attention + part + "_proj", kHeads * kDim, kHiddenSize);
        layer.Put(attention + part + "_conv1d.weight", {kHeads * kDim, 1, 4});
      }
      for (const char* part : {"f", "g"}) {
        layer.Linear(attention + part + "_a_proj", kDim, kHiddenSize);
        layer.Linear(attention + part + "_b_proj", kHeads * kDim, kDim);
      }
      layer.Linear(attention + "b_proj", kHeads, kHiddenSize);
      layer.Put(attention + "A_log", {1, 1, kHeads, 1});
      layer.Put(attention + "dt_bias", {kHeads * kDim});
      layer.Norm(attention + "o_norm", kDim);
      layer.Linear(attention + "o_proj", kHiddenSize, kHeads * kDim);
    }
    if (i == 0) {
      layer.Mlp("mlp", kMlpWidth);
      continue;
    }
    layer.Linear(moe + "gate", kHybridExperts, kHiddenSize);
    layer.Put(moe + "gate.e_score_correction_bias", {kHybridExperts});
    layer.Mlp(moe + "shared_experts", kExpertWidth);
    for (int64_t e = 0; e < kHybridExperts; ++e) {
      const std::string expert = moe + "experts." + std::to_string(e);
      layer.Linear(expert + ".w1", kExpertWidth, kHiddenSize);
      layer.Linear(expert + ".w2", kHiddenSize, kExpertWidth);
      layer.Linear(expert + ".w3", kExpertWidth, kHiddenSize);
    }
  }
}

void MakeOlmoHybrid(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  constexpr int64_t kKeyHeads = 2, kValueHeads = 6, kKeyDim = 10, kValueDim = 12, kKernel = 4;
  Configure(files, "olmo_hybrid", kLayers, AttentionKeys());
  files.json.update(Json{{"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                         {"intermediate_size", kMlpWidth},
                         {"linear_num_key_heads", kKeyHeads},
                         {"linear_num_value_heads", kValueHeads},
                         {"linear_key_head_dim", kKeyDim},
                         {"linear_value_head_dim", kValueDim},
                         {"linear_conv_kernel_dim", kKernel},
                         {"linear_allow_neg_eigval", true},
                         {"attention_bias", true},
                         {"rope_parameters", {{"rope_theta", nullptr}, {"rope_type", "default"}}}});
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    layer.Mlp("mlp", kMlpWidth);
    if (i == 1) {
      layer.Attention("self_attn", true);
      layer.Norm("self_attn.q_norm", kQueryHeads * kHeadDim);
      layer.Norm("self_attn.k_norm", kSharedHeads * kHeadDim);
      layer.Norm("post_feedforward_layernorm", kHiddenSize);
      continue;
    }
    const int64_t keys = kKeyHeads * kKeyDim, values = kValueHeads * kValueDim;
    layer.Linear("linear_attn.q_proj", keys, kHiddenSize);
    layer.Linear("linear_attn.k_proj", keys, kHiddenSize);
    layer.Linear("linear_attn.v_proj", values, kHiddenSize);
    layer.Linear("linear_attn.g_proj", values, kHiddenSize);
    layer.Linear("linear_attn.a_proj", kValueHeads, kHiddenSize);
    layer.Linear("linear_attn.b_proj", kValueHeads, kHiddenSize);
    layer.Put("linear_attn.q_conv1d.weight", {keys, 1, kKernel});
    layer.Put("linear_attn.k_conv1d.weight", {keys, 1, kKernel});
    layer.Put("linear_attn.v_conv1d.weight", {values, 1, kKernel});
    layer.Put("linear_attn.A_log", {kValueHeads});
    layer.Put("linear_attn.dt_bias", {kValueHeads});
    layer.Norm("linear_attn.o_norm", kValueDim);
    layer.Linear("linear_attn.o_proj", kHiddenSize, values);
  }
}

void MakePlamo2(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  constexpr int64_t kHeads = 6, kInner = kHeads * kHeadDim, kState = 10, kRank = 64;
  Configure(files, "plamo2", kLayers, AttentionKeys());
  files.json.update(Json{{"hidden_size_per_head", kHeadDim},
                         {"intermediate_size", kMlpWidth},
                         {"attention_window_size", 16},
                         {"mamba_num_heads", kHeads},
                         {"mamba_d_state", kState},
                         {"mamba_d_conv", 4},
                         {"mamba_step", 2}});
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.layers.", i);
    for (const char* norm : {"pre_mixer_norm", "post_mixer_norm", "pre_mlp_norm", "post_mlp_norm"}) {
      layer.Put(std::string(norm) + ".weight", {kHiddenSize});
    }
    if (i == 1) {
      layer.Linear("mixer.qkv_proj", (kQueryHeads + 2 * kSharedHeads) * kHeadDim, kHiddenSize);
      layer.Linear("mixer.o_proj", kHiddenSize, kQueryHeads * kHeadDim);
      layer.Put("mixer.q_weight", {kQueryHeads, kHeadDim});
      layer.Put("mixer.k_weight", {kSharedHeads, kHeadDim});
    } else {
      layer.Linear("mixer.in_proj", 2 * kInner, kHiddenSize);
      layer.Put("mixer.conv1d.weight", {kInner, 1, 4});
      layer.Linear("mixer.bcdt_proj", 2 * kState + kRank, kInner);
      layer.Linear("mixer.dt_proj", kHeads, kRank);
      for (const char* name : {"dt_bias", "A_log", "D"}) layer.Put(std::string("mixer.") + name, {kHeads});
      layer.Put("mixer.B_norm_weight", {kState});
      layer.Put("mixer.C_norm_weight", {kState});
      layer.Put("mixer.dt_norm_weight", {kRank});
      layer.Linear("mixer.out_proj", kHiddenSize, kInner);
    }
    layer.Linear("mlp.gate_up_proj", 2 * kMlpWidth, kHiddenSize);
    layer.Linear("mlp.down_proj", kHiddenSize, kMlpWidth);
  }
}

void MakeRwkv7(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  constexpr int64_t kRank = 6;
  Configure(files, "rwkv7", kLayers,
            {{"head_dim", 16},
             {"hidden_act", "sqrelu"},
             {"intermediate_size", kMlpWidth},
             {"max_position_embeddings", 512},
             {"norm_eps", 1e-5},
             {"decay_low_rank_dim", kRank},
             {"a_low_rank_dim", kRank},
             {"v_low_rank_dim", kRank - 2},
             {"gate_low_rank_dim", kRank + 2},
             {"fuse_norm", false}});
  files.AddCopy("model.embed_tokens.weight", "model.embeddings.weight");
  files.AddF32("model.norm.bias", {kHiddenSize}, 0.1F);
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    const auto norm = [&](const std::string& name) {
      layer.Norm(name, kHiddenSize);
      layer.Put(name + ".bias", {kHiddenSize});
    };
    const auto low_rank = [&](const std::string& name, int64_t rank, bool bias) {
      layer.Linear(name + "_lora.lora.0", rank, kHiddenSize);
      layer.Linear(name + "_lora.lora.2", kHiddenSize, rank, bias);
    };
    if (i == 0) norm("pre_norm");
    norm("attn_norm");
    norm("ffn_norm");
    norm("attn.g_norm");
    for (const char* part : {"r", "w", "k", "v", "a", "g"}) {
      layer.Put(std::string("attn.x_") + part, {1, 1, kHiddenSize});
    }
    for (const char* part : {"r", "k", "v", "o"}) {
      layer.Linear(std::string("attn.") + part + "_proj", kHiddenSize, kHiddenSize);
    }
    low_rank("attn.w", kRank, true);
    low_rank("attn.a", kRank, true);
    if (i > 0) low_rank("attn.v", kRank - 2, true);
    low_rank("attn.g", kRank + 2, false);
    layer.Put("attn.k_k", {kHiddenSize});
    layer.Put("attn.k_a", {kHiddenSize});
    layer.Put("attn.r_k", {kHiddenSize / 16, 16});
    layer.Put("ffn.x_k", {kHiddenSize});
    layer.Linear("ffn.key", kMlpWidth, kHiddenSize);
    layer.Linear("ffn.value", kHiddenSize, kMlpWidth);
  }
}

void MakeZamba2(PatchedModelFiles& files) {
  constexpr int kLayers = 5;
  constexpr int64_t kRank = 4, kWide = 2 * kHiddenSize, kDim = kWide / kQueryHeads;
  const std::vector<std::string> kinds = {"hybrid", "mamba", "hybrid", "hybrid", "mamba"};
  Configure(files, "zamba2", kLayers, AttentionKeys());
  files.json.update(Json{{"layers_block_type", kinds},
                         {"num_mem_blocks", 2},
                         {"use_shared_attention_adapter", true},
                         {"use_mem_rope", true},
                         {"rope_theta", 1e4},
                         {"adapter_rank", kRank},
                         {"add_bias_linear", true},
                         {"hidden_act", "gelu"},
                         {"intermediate_size", kMlpWidth},
                         {"n_mamba_heads", 8},
                         {"mamba_headdim", 16},
                         {"mamba_ngroups", 2},
                         {"mamba_d_state", 6},
                         {"mamba_d_conv", 3},
                         {"mamba_expand", 2}});
  files.AddCopy("model.norm.weight", "model.final_layernorm.weight");
  int uses = 0;
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    const bool hybrid = kinds[static_cast<size_t>(i)] == "hybrid";
    const std::string mamba = hybrid ? "mamba_decoder." : "";
    files.Remove("model.layers." + std::to_string(i) + ".input_layernorm.weight");
    layer.Norm(mamba + "input_layernorm", kHiddenSize);
    layer.Mamba2(mamba + "mamba", {.heads = 8,
                                   .head_dim = 16,
                                   .groups = 2,
                                   .state = 6,
                                   .kernel = 3,
                                   .in_bias = true,
                                   .conv_bias = true,
                                   .out_bias = true,
                                   .norm = true});
    if (!hybrid) continue;
    layer.Linear("linear", kHiddenSize, kHiddenSize);
    const int use = uses++;
    // The third use has the first one's block, and its adapters are stored there.
    const LayerTensors home(files, "model.", use == 2 ? 0 : i);
    const std::string attention = "shared_transformer.self_attn", mlp = "shared_transformer.feed_forward";
    const auto adapter = [&](const std::string& list, int64_t out, int64_t in) {
      home.Linear(list + "." + std::to_string(use) + ".0", kRank, in);
      home.Linear(list + "." + std::to_string(use) + ".1", out, kRank);
    };
    adapter(attention + ".linear_q_adapter_list", kQueryHeads * kDim, kWide);
    adapter(attention + ".linear_k_adapter_list", kSharedHeads * kDim, kWide);
    adapter(attention + ".linear_v_adapter_list", kSharedHeads * kDim, kWide);
    adapter(mlp + ".gate_up_proj_adapter_list", 2 * kMlpWidth, kHiddenSize);
    if (use == 2) continue;
    layer.Norm("shared_transformer.input_layernorm", kWide);
    layer.Norm("shared_transformer.pre_ff_layernorm", kHiddenSize);
    layer.Linear(attention + ".q_proj", kQueryHeads * kDim, kWide);
    layer.Linear(attention + ".k_proj", kSharedHeads * kDim, kWide);
    layer.Linear(attention + ".v_proj", kSharedHeads * kDim, kWide);
    layer.Linear(attention + ".o_proj", kHiddenSize, kQueryHeads * kDim);
    layer.Linear(mlp + ".gate_up_proj", 2 * kMlpWidth, kHiddenSize, true);
    layer.Linear(mlp + ".down_proj", kHiddenSize, kMlpWidth, true);
  }
}

}  // namespace quire::runner::models::test
