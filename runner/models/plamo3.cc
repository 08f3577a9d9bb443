#include <nlohmann/json.hpp>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// GGUF files only: directories have no tokenizer.json.
api::Result<std::unique_ptr<Model>> LoadPlamo3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  constexpr ConfigKey kPattern = {"", "attention.sliding_window_pattern"};
  const auto* const pattern = read.Find(kPattern);
  const bool listed = pattern != nullptr && pattern->is_array();
  const RopeQuery rope{.default_theta = 10000};
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.norm_eps = 1e-6F},
             .rope = rope,
             .slides = [](int32_t layer, int32_t every) { return every > 0 && (layer + 1) % every != 0; },
             .period = listed ? 0 : read.Small(kPattern, 0, kMaxLayers, 8)});
  ReadSlidingRope(read, rope, &form);
  form.norms = NormPlaces::kAround;
  form.qk_norm = QkNorm::kHeads;
  form.names.attention.qkv = {"", "attn_qkv"};
  form.names.mlp.gate_up = {"", "ffn_up"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
