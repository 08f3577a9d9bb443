#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// No norm has weights. Those of queries and keys are behind the rotation, which does not change their size.
api::Result<std::unique_ptr<Model>> LoadNanoChat(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.context = 2048,
                                                      .norm = NormKind::kPlainRms,
                                                      .norm_eps = 1e-6F,
                                                      .plain_activation = PlainActivation::kSquaredRelu}});
  RopeSpec& rope = form.ropes[0];
  // Norms undo what a rotation grows by, but for its part of the epsilon.
  form.qk_eps = form.decoder.norm_eps / (rope.magnitude * rope.magnitude);
  rope.magnitude = rope.short_magnitude = 1;
  for (std::vector<float>* frequencies : {&rope.frequencies, &rope.short_frequencies}) {
    for (float& frequency : *frequencies) frequency = -frequency;  // pairs turn the other way
  }
  form.qk_norm = QkNorm::kUnitHeads;
  constexpr ConfigKey kCap = {"final_logit_softcapping", ""};
  if (!read.SaysNull(kCap.hugging_face)) form.logit_cap = static_cast<float>(read.Positive(kCap, 1e6, 15));
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.names.embedding_norm = {"norm", ""};
  form.names.mlp = {.up = {"mlp.fc1", ""}, .down = {"mlp.fc2", ""}};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
