#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadPhi3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 4096, .norm_eps = 1e-5F},
                                            .rope = {.default_theta = 10000, .partial_allowed = true}});
  read.Require("full_attn_mod", 1.0);
  read.Require("interpolate_factor", 1.0);
  form.names.attention.qkv = {"self_attn.qkv_proj", "attn_qkv"};
  form.names.mlp.gate_up = {"mlp.gate_up_proj", "ffn_up"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
