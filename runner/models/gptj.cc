#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGptJ(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 2048,
                                                      .norm = NormKind::kLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kGelu,
                                                      .head_bias = Bias::kPresent},
                                            .rope = {.default_theta = -1},
                                            .given_feed_forward = 4});
  if (read.SaysNull("rotary_dim")) read.Fail("rotary_dim: null is not supported");
  const int32_t rotated = read.Small({"rotary_dim", ""}, 2, form.decoder.head_dim, 64);
  // The key "rotary" only repeats that there is a rotation.
  read.Require("rotary", true);
  form.ropes.push_back(ReadRope(
      read, {.head_dim = rotated, .default_theta = 10000, .pairs = kernels::RopePairs::kInterleaved}));
  for (LayerForm& layer : form.layers) layer.rope = 0;
  form.norms = NormPlaces::kParallel;
  form.mlp_bias = Bias::kPresent;
  form.names = {.layers = "h",
                .embedding = {"wte", ""},
                .attention_norm = {"ln_1", ""},
                .attention = {.q = {"attn.q_proj", ""},
                              .k = {"attn.k_proj", ""},
                              .v = {"attn.v_proj", ""},
                              .out = {"attn.out_proj", ""}},
                .mlp = {.up = {"mlp.fc_in", ""}, .down = {"mlp.fc_out", ""}},
                .final_norm = {"ln_f", ""}};
  read.Ignore({"n_ctx", "scale_attn_weights", "gradient_checkpointing", "summary_type", "summary_use_proj",
               "summary_activation", "summary_proj_to_labels"});
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
