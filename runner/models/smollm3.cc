#include <algorithm>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// GGUF does not say which layers have no positions: every fourth, as in the published models.
api::Result<std::unique_ptr<Model>> LoadSmolLm3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 32768, .norm_eps = 1e-6F},
                             .tied = TiedByDefault::kYes,
                             .rope = {.default_theta = 2e6, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  const int32_t layers = form.decoder.layers;
  int32_t none = LayerForm::kNoRope;
  if (read.gguf()) {
    // Rows are permuted in these layers too: a rotation by no angle puts queries and keys in order.
    RopeSpec still = form.ropes[0];
    std::ranges::fill(still.frequencies, 0.0F);
    form.ropes.push_back(still);
    none = 1;
  }
  const int32_t every = read.Small({"no_rope_layer_interval", ""}, 1, kMaxLayers, 4);
  constexpr ConfigKey kRotated = {"no_rope_layers", ""};  // despite its name, 1 is for layers with positions
  const bool listed = read.Find(kRotated) != nullptr;
  const bool slides = read.Boolean({"use_sliding_window", ""}, false);
  const bool typed = read.Find({"layer_types", ""}) != nullptr;
  const std::vector<int64_t> rotated = read.Integers(kRotated, layers, 0, 1, 1);
  for (size_t i = 0; i < form.layers.size(); ++i) {
    const bool has = listed ? rotated[i] == 1 : (static_cast<int32_t>(i) + 1) % every != 0;
    if (!has) form.layers[i].rope = none;
    // Where layer_types does not say, windows are for layers without positions.
    if (!typed && (!slides || has)) form.layers[i].window = 0;
  }
  read.Ignore({"max_window_layers"});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
