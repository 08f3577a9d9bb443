#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadStarCoder2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 4096,
                                                      .norm = NormKind::kLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kGelu},
                                            .tied = TiedByDefault::kYes});
  read.Require("norm_type", "layer_norm");
  read.Require("mlp_type", "default");
  read.Require("scale_attn_weights", true);
  read.Ignore({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"});
  form.names.mlp = {.up = {"mlp.c_fc", "ffn_up"}, .down = {"mlp.c_proj", "ffn_down"}};
  form.attention_bias = form.out_bias = form.mlp_bias = ReadBias(read, "use_bias", true);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
