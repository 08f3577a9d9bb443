#include "runner/models/families.h"
#include "runner/models/hybrid_config.h"

namespace quire::runner::models {

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
  // GGUF files have the norm by groups, as the published kernels compute it; transformers norms all channels together.
  if (read.gguf()) form.mamba.norm_groups = static_cast<int32_t>(form.mamba.shape.groups);
  read.Require("rms_norm", true);
  read.Require("norm_before_gate", false);
  for (HybridLayer& layer : form.layers) layer.mamba = true;
  form.names = {.embedding = {"embeddings", "token_embd"},
                .final_norm = {"norm_f", "output_norm"},
                .mixer_norm = {"norm", "attn_norm"},
                .mamba = "mixer"};
  return BuildHybrid(read, std::move(files), form);
}

}  // namespace quire::runner::models
