#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {
namespace {

// A GGUF file has every multiplier folded into its weights.
void ReadFalconMultipliers(ConfigReader& read, HybridForm* form) {
  constexpr double kMostMultiplier = 1e6;
  form->embedding_scale = ReadMultiplier(read, {"embedding_multiplier", ""});
  form->logit_scale = ReadMultiplier(read, {"lm_head_multiplier", ""});
  form->attention_in = ReadMultiplier(read, {"attention_in_multiplier", ""});
  form->attention_out = ReadMultiplier(read, {"attention_out_multiplier", ""});
  form->key_scale = ReadMultiplier(read, {"key_multiplier", ""});
  form->mamba.in_scale = ReadMultiplier(read, {"ssm_in_multiplier", ""});
  form->mamba_out = ReadMultiplier(read, {"ssm_out_multiplier", ""});
  constexpr ConfigKey kRows = {"ssm_multipliers", ""}, kMlp = {"mlp_multipliers", ""};
  if (read.Find(kRows) != nullptr) {
    const std::vector<double> scales = read.Numbers(kRows, 5, kMostMultiplier);
    for (size_t i = 0; i < 5; ++i) form->mamba.row_scales[i] = static_cast<float>(scales[i]);
  }
  if (read.Find(kMlp) != nullptr) {
    const std::vector<double> scales = read.Numbers(kMlp, 2, kMostMultiplier);
    form->mlp_gate = static_cast<float>(scales[0]);
    form->mlp_out = static_cast<float>(scales[1]);
  }
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadFalconH1(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  HybridForm form = ReadHybridForm(read, {.given = {.context = 8192, .norm_eps = 1e-5F}});
  form.mamba = ReadMamba2(read,
                          {.heads = "mamba_n_heads",
                           .head_dim = "mamba_d_head",
                           .groups = "mamba_n_groups",
                           .state = "mamba_d_state",
                           .kernel = "mamba_d_conv",
                           .expand = "mamba_expand",
                           .inner = "mamba_d_ssm",
                           .in_bias = "mamba_proj_bias",
                           .conv_bias = "mamba_conv_bias",
                           .out_bias = "projectors_bias"},
                          form.decoder.hidden);
  form.mamba.norm_groups = static_cast<int32_t>(form.mamba.shape.groups);
  form.mamba.normed = read.gguf() ? files->Find("blk.0.ssm_norm.weight") != nullptr
                                  : read.Boolean({"mamba_rms_norm", ""}, false);
  form.mamba.norm_first = !read.gguf() && read.Boolean({"mamba_norm_before_gate", ""}, true);
  for (HybridLayer& layer : form.layers) {
    layer = {.attends = true, .mamba = true, .feed = HybridLayer::Feed::kMlp};
  }
  form.feed_forward = ReadFeedForward(read);
  form.rope = ReadRope(read, {.head_dim = form.decoder.head_dim, .default_theta = 10000});
  form.attention_bias = form.attention_out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  ReadFalconMultipliers(read, &form);
  read.Require("mamba_use_mlp", true);
  read.Ignore({"mlp_expansion_factor"});
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
