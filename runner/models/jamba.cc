#include <fmt/format.h>

#include <algorithm>

#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {
namespace {

MambaForm ReadJambaMamba(ConfigReader& read, int32_t hidden) {
  MambaForm form{.selective = true};
  form.inner = read.gguf() ? read.Integer({"", "ssm.inner_size"}, 1, kMaxWidth)
                           : hidden * read.Integer({"mamba_expand", ""}, 1, 64, 2);
  if (form.inner > kMaxWidth) read.Fail("mamba_expand: the state-space layers are too wide");
  form.state = read.Integer({"mamba_d_state", "ssm.state_size"}, 1, 1 << 12);
  form.kernel = read.Small({"mamba_d_conv", "ssm.conv_kernel"}, 1, kMaxConvKernel);
  form.step_rank = ReadStepRank(read, {"mamba_dt_rank", "ssm.time_step_rank"}, hidden);
  form.in_bias = form.out_bias = ReadBias(read, "mamba_proj_bias");
  form.conv_bias = ReadBias(read, "mamba_conv_bias", true);
  form.step_norms = MambaForm::StepNorms::kWeighted;
  return form;
}

void ReadJambaExperts(ConfigReader& read, HybridForm* form) {
  const auto layers = static_cast<size_t>(form->decoder.layers);
  constexpr ConfigKey kExperts = {"num_experts", "expert_count"};
  const int32_t period = read.Small({"expert_layer_period", ""}, 1, kMaxLayers, 2);
  const int32_t offset = read.Small({"expert_layer_offset", ""}, 0, kMaxLayers, 1);
  const bool sparse = read.Small(kExperts, 0, kMaxExperts, read.gguf() ? 0 : 16) > 1;
  for (size_t i = 0; i < layers; ++i) {
    const bool stored = read.files().Find(fmt::format("blk.{}.ffn_gate_inp.weight", i)) != nullptr;
    const bool chosen = read.gguf() ? stored : static_cast<int32_t>(i) % period == offset;
    form->layers[i].feed = sparse && chosen ? HybridLayer::Feed::kExperts : HybridLayer::Feed::kMlp;
  }
  if (!sparse) return read.Ignore({"num_experts_per_tok"});
  form->mixture.config = ReadMixture(read, form->decoder.layers, {.normalize = false});
  form->mixture.names.router = {"feed_forward.router", "ffn_gate_inp"};
  form->mixture.names.experts = {.gate = "feed_forward.experts.{}.gate_proj",
                                 .up = "feed_forward.experts.{}.up_proj",
                                 .down = "feed_forward.experts.{}.down_proj",
                                 .gate_up_stacked = "feed_forward.experts.gate_up_proj",
                                 .down_stacked = "feed_forward.experts.down_proj"};
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadJamba(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  HybridForm form = ReadHybridForm(read, {.given = {.context = 262144, .norm_eps = 1e-6F}});
  form.mamba = ReadJambaMamba(read, form.decoder.hidden);
  form.mamba.step_norm_eps = form.decoder.norm_eps;
  const int32_t period = read.Small({"attn_layer_period", ""}, 1, kMaxLayers, 8);
  const int32_t offset = read.Small({"attn_layer_offset", ""}, 0, kMaxLayers, 4);
  for (size_t i = 0; i < form.layers.size(); ++i) {
    HybridLayer& layer = form.layers[i];
    if (!read.gguf()) layer.attends = static_cast<int32_t>(i) % period == offset;
    layer.mamba = !layer.attends;
  }
  form.feed_forward = ReadFeedForward(read);
  ReadJambaExperts(read, &form);
  read.Require("mamba_inner_layernorms", true);
  read.Ignore({"calc_logits_for_entire_prompt"});
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
