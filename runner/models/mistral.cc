#include "runner/models/families.h"
#include "runner/models/llama.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadMistral(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  LlamaConfig config{.decoder = ReadDecoderConfig(read, {.norm_eps = 1e-6F}),
                     .feed_forward = ReadFeedForward(read)};
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 10000});
  config.windows = ReadWindows(read, config.decoder.layers, [](int32_t, int32_t) { return true; });
  return BuildLlama(read, std::move(files), config);
}

}  // namespace quire::runner::models
