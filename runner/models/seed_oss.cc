#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadSeedOss(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.head_dim = 128, .norm_eps = 1e-6F}});
  form.names.mlp_norm = {"post_attention_layernorm", "post_attention_norm"};
  form.attention_bias = ReadBias(read, "attention_bias", true);
  form.out_bias = ReadBias(read, "attention_out_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
