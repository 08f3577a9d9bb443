#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// Spark 2.5: a factor for each head's result; windows in some layers, which have a rotation of their own.
api::Result<std::unique_ptr<Model>> LoadSpark(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const auto rope = [&](std::string_view type, std::string_view theta, std::string_view dimensions) {
    const bool own = read.Find({"", theta}) != nullptr;
    return RopeQuery{.layer_type = type,
                     .theta = {"", own ? theta : "rope.freq_base"},
                     .default_theta = 10000,
                     .partial_allowed = true,
                     .dimensions = {"", dimensions}};
  };
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.norm_eps = 1e-6F, .activation = Activation::kGelu},
                             .rope = rope("full_attention", "rope.freq_base", "rope.dimension_count")});
  RopeQuery sliding = rope("sliding_attention", "rope.freq_base_swa", "rope.dimension_count_swa");
  sliding.head_dim = form.decoder.head_dim;
  form.ropes.push_back(ReadRope(read, sliding));
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t, int32_t) { return false; }, 0, 0));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  form.output_gate = OutputGate::Kind::kSigmoid;
  form.names.attention.qkv = {"", "attn_qkv"};
  form.names.attention.gate = {"", "attn_gate"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
