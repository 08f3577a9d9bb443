#include "runner/models/families.h"
#include "runner/models/moe_decoder.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadQwen3Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  // GGUF has no key for norm_topk_prob.
  MoeDecoderConfig config = ReadMoeDecoder(read, {.norm_eps = 1e-6F}, {.normalize = read.gguf()});
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 10000});
  config.head_norms = true;
  const bool biased = read.Boolean({"attention_bias", ""}, false);
  config.attention_bias = config.out_bias = biased ? Bias::kPresent : Bias::kAbsent;
  read.Ignore({"sliding_window", "max_window_layers"});  // of a meaning with use_sliding_window only
  if (read.Boolean({"use_sliding_window", ""}, false)) {
    const int32_t first = read.Small({"max_window_layers", ""}, 0, kMaxLayers, 28);
    config.windows = ReadWindows(
        read, config.decoder.layers, [](int32_t layer, int32_t from) { return layer >= from; }, first);
  }
  return BuildMoeDecoder(read, std::move(files), config);
}

}  // namespace quire::runner::models
