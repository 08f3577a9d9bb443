#include "runner/models/testing/hybrid_models.h"

#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/testing/layer_tensors.h"

namespace quire::runner::models::test {
namespace {

void MoveToBackbone(PatchedModelFiles& files) {
  files.AddCopy("model.embed_tokens.weight", "backbone.embeddings.weight");
  files.AddCopy("model.norm.weight", "backbone.norm_f.weight");
}

}  // namespace

void MakeFalconH1(PatchedModelFiles& files) {
  constexpr int kLayers = 2;
  Configure(files, "falcon_h1", kLayers, AttentionKeys());
  files.json.update(Json{{"intermediate_size", kMlpWidth},
                         {"mamba_n_heads", 6},
                         {"mamba_d_head", 12},
                         {"mamba_d_ssm", 72},
                         {"mamba_n_groups", 2},
                         {"mamba_d_state", 10},
                         {"mamba_d_conv", 4},
                         {"mamba_expand", 2},
                         {"mamba_rms_norm", true},
                         {"mamba_norm_before_gate", false},
                         {"mamba_conv_bias", true},
                         {"mamba_proj_bias", true},
                         {"projectors_bias", true},
                         {"attention_bias", true},
                         {"mlp_bias", true},
                         {"rope_theta", 1e6},
                         {"embedding_multiplier", 3.0},
                         {"lm_head_multiplier", 0.5},
                         {"key_multiplier", 0.6},
                         {"attention_in_multiplier", 0.8},
                         {"attention_out_multiplier", 0.7},
                         {"ssm_in_multiplier", 1.25},
                         {"ssm_out_multiplier", 0.5},
                         {"mlp_multipliers", {0.8, 1.4}},
                         {"ssm_multipliers", {0.7, 1.2, 0.8, 1.1, 0.9}}});
  files.AddCopy("model.norm.weight", "model.final_layernorm.weight");
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    files.Remove("model.layers." + std::to_string(i) + ".input_layernorm.weight");
    layer.Norm("input_layernorm", kHiddenSize);
    layer.Norm("pre_ff_layernorm", kHiddenSize);
    layer.Attention("self_attn", true);
    layer.Mamba2("mamba", {.heads = 6,
                           .head_dim = 12,
                           .groups = 2,
                           .state = 10,
                           .kernel = 4,
                           .in_bias = true,
                           .conv_bias = true,
                           .out_bias = true,
                           .norm = true});
    layer.Mlp("feed_forward", kMlpWidth, true);
  }
}

void MakeGraniteHybrid(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  Configure(files, "granitemoehybrid", kLayers, AttentionKeys());
  files.json.update(Json{{"layer_types", {"mamba", "attention", "mamba"}},
                         {"mamba_n_heads", 8},
                         {"mamba_d_head", "auto"},
                         {"mamba_n_groups", 2},
                         {"mamba_d_state", 6},
                         {"mamba_d_conv", 3},
                         {"mamba_expand", 2},
                         {"mamba_conv_bias", false},
                         {"position_embedding_type", "rope"},
                         {"num_local_experts", kHybridExperts},
                         {"num_experts_per_tok", 2},
                         {"intermediate_size", kExpertWidth},
                         {"shared_intermediate_size", kMlpWidth},
                         {"embedding_multiplier", 6.0},
                         {"residual_multiplier", 0.5},
                         {"logits_scaling", 3.0},
                         {"attention_multiplier", 0.2}});
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    if (i == 1) {
      layer.Attention("self_attn", false);
    } else {
      layer.Mamba2("mamba", {.heads = 8,
                             .head_dim = 16,
                             .groups = 2,
                             .state = 6,
                             .kernel = 3,
                             .in_bias = false,
                             .conv_bias = false,
                             .out_bias = false,
                             .norm = true});
    }
    layer.Put("block_sparse_moe.router.layer.weight", {kHybridExperts, kHiddenSize});
    layer.Put("block_sparse_moe.input_linear.weight", {kHybridExperts, 2 * kExpertWidth, kHiddenSize});
    layer.Put("block_sparse_moe.output_linear.weight", {kHybridExperts, kHiddenSize, kExpertWidth});
    layer.Linear("shared_mlp.input_linear", 2 * kMlpWidth, kHiddenSize);
    layer.Linear("shared_mlp.output_linear", kHiddenSize, kMlpWidth);
  }
}

void MakeJamba(PatchedModelFiles& files) {
  constexpr int kLayers = 3;
  constexpr int64_t kInner = 128, kState = 6, kRank = 4;
  Configure(files, "jamba", kLayers, AttentionKeys());
  files.json.update(Json{{"attn_layer_period", 3},
                         {"attn_layer_offset", 1},
                         {"expert_layer_period", 2},
                         {"expert_layer_offset", 0},
                         {"num_experts", kHybridExperts},
                         {"num_experts_per_tok", 2},
                         {"intermediate_size", kExpertWidth},
                         {"mamba_d_state", kState},
                         {"mamba_d_conv", 4},
                         {"mamba_expand", 2},
                         {"mamba_dt_rank", "auto"},
                         {"mamba_proj_bias", true}});
  files.AddCopy("model.norm.weight", "model.final_layernorm.weight");
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "model.", i);
    layer.Norm("pre_ff_layernorm", kHiddenSize);
    if (i == 1) {
      layer.Attention("self_attn", false);
    } else {
      layer.Linear("mamba.in_proj", 2 * kInner, kHiddenSize, true);
      layer.Put("mamba.conv1d.weight", {kInner, 1, 4});
      layer.Put("mamba.conv1d.bias", {kInner});
      layer.Linear("mamba.x_proj", kRank + 2 * kState, kInner);
      layer.Linear("mamba.dt_proj", kInner, kRank, true);
      layer.Norm("mamba.dt_layernorm", kRank);
      layer.Norm("mamba.b_layernorm", kState);
      layer.Norm("mamba.c_layernorm", kState);
      layer.Put("mamba.A_log", {kInner, kState});
      layer.Put("mamba.D", {kInner});
      layer.Linear("mamba.out_proj", kHiddenSize, kInner, true);
    }
    if (i % 2 != 0) {
      layer.Mlp("feed_forward", kExpertWidth);
      continue;
    }
    layer.Linear("feed_forward.router", kHybridExperts, kHiddenSize);
    for (int64_t e = 0; e < kHybridExperts; ++e) {
      layer.Mlp("feed_forward.experts." + std::to_string(e), kExpertWidth);
    }
  }
}

void MakeMamba2(PatchedModelFiles& files) {
  constexpr int kLayers = 2;
  Configure(files, "mamba2", kLayers,
            {{"num_heads", 8},
             {"head_dim", 16},
             {"n_groups", 4},
             {"state_size", 9},
             {"conv_kernel", 4},
             {"expand", 2},
             {"use_bias", true},
             {"use_conv_bias", false},
             {"layer_norm_epsilon", 1e-4},
             {"rms_norm", true},
             {"time_step_limit", {0.02, Json{{"__float__", "Infinity"}}}}});
  MoveToBackbone(files);
  for (int i = 0; i < kLayers; ++i) {
    const LayerTensors layer(files, "backbone.", i);
    layer.Norm("norm", kHiddenSize);
    layer.Mamba2("mixer", {.heads = 8,
                           .head_dim = 16,
                           .groups = 4,
                           .state = 9,
                           .kernel = 4,
                           .in_bias = true,
                           .conv_bias = false,
                           .out_bias = true,
                           .norm = true});
  }
}

void MakeNemotronH(PatchedModelFiles& files) {
  constexpr int64_t kLatent = 32;
  const std::string pattern = "ME*-M";
  Configure(files, "nemotron_h", static_cast<int>(pattern.size()), AttentionKeys());
  files.json.erase("rms_norm_eps");
  files.json.update(Json{{"hybrid_override_pattern", pattern},
                         {"head_dim", kHeadDim},
                         {"intermediate_size", kMlpWidth},
                         {"mamba_num_heads", 5},
                         {"mamba_head_dim", 20},
                         {"n_groups", 1},
                         {"ssm_state_size", 7},
                         {"conv_kernel", 4},
                         {"use_conv_bias", true},
                         {"layer_norm_epsilon", 1e-5},
                         {"n_routed_experts", kHybridExperts},
                         {"num_experts_per_tok", 2},
                         {"n_group", 2},
                         {"topk_group", 1},
                         {"n_shared_experts", 1},
                         {"moe_intermediate_size", kExpertWidth},
                         {"moe_shared_expert_intermediate_size", kMlpWidth},
                         {"moe_latent_size", kLatent},
                         {"routed_scaling_factor", 1.5}});
  MoveToBackbone(files);
  for (size_t i = 0; i < pattern.size(); ++i) {
    const LayerTensors layer(files, "backbone.", static_cast<int>(i));
    layer.Norm("norm", kHiddenSize);
    if (pattern[i] == 'M') {
      layer.Mamba2("mixer", {.heads = 5,
                             .head_dim = 20,
                             .groups = 1,
                             .state = 7,
                             .kernel = 4,
                             .in_bias = false,
                             .conv_bias = true,
                             .out_bias = false,
                             .norm = true});
    } else if (pattern[i] == '*') {
      layer.Attention("mixer", false);
    } else if (pattern[i] == '-') {
      layer.Linear("mixer.up_proj", kMlpWidth, kHiddenSize);
      layer.Linear("mixer.down_proj", kHiddenSize, kMlpWidth);
    } else {
      layer.Linear("mixer.gate", kHybridExperts, kHiddenSize);
      layer.Put("mixer.gate.e_score_correction_bias", {kHybridExperts});
      layer.Linear("mixer.fc1_latent_proj", kLatent, kHiddenSize);
      layer.Linear("mixer.fc2_latent_proj", kHiddenSize, kLatent);
      layer.Linear("mixer.shared_experts.up_proj", kMlpWidth, kHiddenSize);
      layer.Linear("mixer.shared_experts.down_proj", kHiddenSize, kMlpWidth);
      for (int64_t e = 0; e < kHybridExperts; ++e) {
        const std::string expert = "mixer.experts." + std::to_string(e);
        layer.Linear(expert + ".up_proj", kExpertWidth, kLatent);
        layer.Linear(expert + ".down_proj", kLatent, kExpertWidth);
      }
    }
  }
}

}  // namespace quire::runner::models::test
