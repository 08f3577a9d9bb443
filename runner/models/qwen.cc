#include "runner/models/families.h"
#include "runner/models/llama.h"

namespace quire::runner::models {
namespace {

LlamaConfig ReadQwen(ConfigReader& read) {
  LlamaConfig config{.decoder = ReadDecoderConfig(read, {.norm_eps = 1e-6F}),
                     .feed_forward = ReadFeedForward(read)};
  const int32_t layers = config.decoder.layers;
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 10000});
  config.windows.assign(static_cast<size_t>(layers), 0);
  // Published models carry a window that they do not use; where one is used, the first layers still see
  // everything.
  if (read.Boolean({"use_sliding_window", ""}, false)) {
    const int32_t first = read.Small({"max_window_layers", ""}, 0, kMaxLayers, 28);
    config.windows = ReadWindows(
        read, layers, [](int32_t layer, int32_t from) { return layer >= from; }, first);
  }
  return config;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadQwen2(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  LlamaConfig config = ReadQwen(read);
  config.attention_bias = Bias::kPresent;
  return BuildLlama(read, std::move(files), config);
}

api::Result<std::unique_ptr<Model>> LoadQwen3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  LlamaConfig config = ReadQwen(read);
  config.head_norms = true;
  const bool biased = read.Boolean({"attention_bias", ""}, false);
  config.attention_bias = config.out_bias = biased ? Bias::kPresent : Bias::kAbsent;
  return BuildLlama(read, std::move(files), config);
}

}  // namespace quire::runner::models
