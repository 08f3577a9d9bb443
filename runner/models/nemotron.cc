#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadNemotron(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // GGUF files have the norms' weights whole.
  DecoderForm form = ReadDecoderForm(read, {.given = {.norm = NormKind::kZeroCenteredLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kSquaredRelu},
                                            .rope = {.default_theta = 10000, .default_partial = 0.5}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

// Jais 2: norms with their weights whole, whole heads rotated, biases.
api::Result<std::unique_ptr<Model>> LoadJais2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 8192,
                                                      .norm = NormKind::kLayer,
                                                      .norm_eps = 1e-5F,
                                                      .plain_activation = PlainActivation::kSquaredRelu}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias", true);
  form.mlp_bias = ReadBias(read, "mlp_bias", true);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
