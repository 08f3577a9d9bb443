#include <algorithm>

#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {
namespace {

const HybridNames kMambaNames = {.embedding = {"embeddings", "token_embd"},
                                 .final_norm = {"norm_f", "output_norm"},
                                 .mixer_norm = {"norm", "attn_norm"},
                                 .mamba = "mixer"};

}  // namespace

// Falcon-Mamba has Mamba's GGUF architecture, and says so with a key of its own.
api::Result<std::unique_ptr<Model>> LoadMamba(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  HybridForm form = ReadHybridForm(
      read,
      {.given = {.context = 1 << 20}, .tied = TiedByDefault::kYes, .attends = false, .layer_eps = true});
  const int32_t hidden = form.decoder.hidden;
  MambaForm& mamba = form.mamba;
  mamba.selective = true;
  const bool normed =
      read.gguf() ? read.Boolean({"", "ssm.dt_b_c_rms"}, false) : files->architecture() == "falcon_mamba";
  if (normed) {
    mamba.step_norms = MambaForm::StepNorms::kPlain;
    mamba.step_norm_eps = read.gguf() ? form.decoder.norm_eps
                                      : static_cast<float>(read.Positive({"mixer_rms_eps", ""}, 1, 1e-6));
  }
  const int64_t expanded = std::min<int64_t>(hidden * read.Integer({"expand", ""}, 1, 64, 2), kMaxWidth);
  mamba.inner = read.Integer({"intermediate_size", "ssm.inner_size"}, 1, kMaxWidth, expanded);
  mamba.state = read.Integer({"state_size", "ssm.state_size"}, 1, 1 << 12);
  mamba.kernel = read.Small({"conv_kernel", "ssm.conv_kernel"}, 1, kMaxConvKernel);
  mamba.step_rank = ReadStepRank(read, {"time_step_rank", "ssm.time_step_rank"}, hidden);
  mamba.in_bias = mamba.out_bias = ReadBias(read, "use_bias");
  mamba.conv_bias = ReadBias(read, "use_conv_bias", true);
  for (HybridLayer& layer : form.layers) layer.mamba = true;
  read.Ignore({"time_step_scale", "time_step_init_scheme", "use_mambapy", "use_falcon_mambapy",
               "use_associative_scan"});
  form.names = kMambaNames;
  return BuildHybrid(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadMamba2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  HybridForm form =
      ReadHybridForm(read, {.given = {.context = 1 << 20}, .attends = false, .layer_eps = true});
  form.mamba = ReadMamba2(read,
                          {.heads = "num_heads",
                           .head_dim = "head_dim",
                           .groups = "n_groups",
                           .state = "state_size",
                           .kernel = "conv_kernel",
                           .expand = "expand",
                           .in_bias = "use_bias",
                           .conv_bias = "use_conv_bias",
                           .out_bias = "use_bias"},
                          form.decoder.hidden);
  // GGUF files have the norm by groups, as the published kernels compute it; transformers norms all channels
  // together.
  if (read.gguf()) form.mamba.norm_groups = static_cast<int32_t>(form.mamba.shape.groups);
  read.Require("rms_norm", true);
  read.Require("norm_before_gate", false);
  for (HybridLayer& layer : form.layers) layer.mamba = true;
  form.names = kMambaNames;
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
