#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadPhi(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 2048,
                                                      .norm = NormKind::kLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kGelu,
                                                      .head_bias = Bias::kPresent},
                                            .rope = {.default_theta = 10000, .default_partial = 0.5}});
  form.norms = NormPlaces::kParallel;
  form.attention_bias = form.out_bias = form.mlp_bias = read.gguf() ? Bias::kIfStored : Bias::kPresent;
  form.names.attention.qkv = {"", "attn_qkv"};
  form.names.attention.out = {"self_attn.dense", "attn_output"};
  form.names.mlp = {.up = {"mlp.fc1", "ffn_up"}, .down = {"mlp.fc2", "ffn_down"}};
  form.names.final_norm = {"final_layernorm", "output_norm"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
