#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadOlmo(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 2048, .norm = NormKind::kPlainLayer, .norm_eps = 1e-5F},
                             .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  constexpr ConfigKey kClip = {"clip_qkv", "attention.clamp_kqv"};
  if (read.Find(kClip) != nullptr) form.clip_qkv = static_cast<float>(read.Positive(kClip, 1e6));
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadOlmo2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.norm_eps = 1e-5F},
                             .slides = [](int32_t layer, int32_t) { return (layer + 1) % 4 != 0; },
                             .given_window = files->architecture() == "olmo3" ? 4096 : 0});
  // rope_scaling stretches full attention alone.
  form.ropes.push_back(ReadRope(read, {.head_dim = form.decoder.head_dim,
                                       .theta = {"rope_theta", "rope.freq_base_swa|rope.freq_base"},
                                       .default_theta = 10000,
                                       .scaled = false}));
  for (LayerForm& layer : form.layers) layer.rope = layer.window > 0 ? 1 : 0;
  form.norms = NormPlaces::kAfter;
  form.qk_norm = QkNorm::kRow;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
