#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGranite(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 2048, .norm_eps = 1e-6F},
                             .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  form.embedding_scale = ReadMultiplier(read, {"embedding_multiplier", "embedding_scale"});
  form.residual_scale = ReadMultiplier(read, {"residual_multiplier", "residual_scale"});
  form.attention_scale = ReadMultiplier(read, {"attention_multiplier", "attention.scale"});
  form.logit_scale = 1 / ReadMultiplier(read, {"logits_scaling", "logit_scale"});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
