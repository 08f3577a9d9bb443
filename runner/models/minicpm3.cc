#include <cmath>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadMiniCpm3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadDecoderForm(read, {.given = {.kv_heads = -1, .head_dim = -1, .norm_eps = 1e-5F},
                                            .tied = TiedByDefault::kYes,
                                            .rope = {.default_theta = 10000},
                                            .value_is_share = true});
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads"});  // follow from other keys
  form.mlp_bias = ReadBias(read, "mlp_bias");
  // GGUF does not say them: those of the one published model. A checkpoint says null where there are none.
  const double depth = form.decoder.layers, hidden = form.decoder.hidden;
  const auto factor = [&](const char* key, double given, double none) {
    return read.Positive({key, ""}, 1e6, read.SaysNull(key) ? none : given);
  };
  form.embedding_scale = static_cast<float>(read.Positive({"scale_emb", ""}, 1e6, 12));
  form.residual_scale = static_cast<float>(factor("scale_depth", 1.4, std::sqrt(depth)) / std::sqrt(depth));
  form.logit_scale = static_cast<float>(factor("dim_model_base", 256, hidden) / hidden);
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
