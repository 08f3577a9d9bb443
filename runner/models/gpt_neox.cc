#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGptNeoX(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 2048,
                                       .norm = NormKind::kLayer,
                                       .norm_eps = 1e-5F,
                                       .plain_activation = PlainActivation::kGeluErf},
                             .rope = {.theta = {"rotary_emb_base|rope_theta", "rope.freq_base"},
                                      .default_theta = 10000,
                                      .default_partial = 0.25}});
  constexpr ConfigKey kParallel = {"use_parallel_residual", "use_parallel_residual"};
  if (read.Boolean(kParallel, true)) form.norms = NormPlaces::kBeside;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias", true);
  form.mlp_bias = Bias::kPresent;
  form.names.embedding = {"embed_in", "token_embd"};
  form.names.attention.out = {"attention.dense", "attn_output"};
  form.names.attention.qkv = {"attention.query_key_value", "attn_qkv"};
  form.names.attention.grouped = true;
  form.names.mlp = {.up = {"mlp.dense_h_to_4h", "ffn_up"}, .down = {"mlp.dense_4h_to_h", "ffn_down"}};
  form.names.final_norm = {"final_layer_norm", "output_norm"};
  form.names.head = {"embed_out", "output"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
