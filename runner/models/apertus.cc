#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadApertus(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.context = 65536, .norm_eps = 1e-5F, .plain_activation = PlainActivation::kXielu},
             .rope = {.default_theta = 12e6, .required = true}});
  read.Require("qk_norm", true);
  form.qk_norm = QkNorm::kHeads;
  form.names.attention_norm = {"attention_layernorm", "attn_norm"};
  form.names.mlp_norm = {"feedforward_layernorm", "ffn_norm"};
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
