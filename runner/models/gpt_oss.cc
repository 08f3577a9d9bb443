#include <fmt/format.h>

#include "runner/models/families.h"
#include "runner/models/gpt_oss_experts.h"
#include "runner/models/moe_decoder.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGptOss(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  MoeDecoderConfig config = ReadMoeDecoder(read, {.norm_eps = 1e-5F}, {.normalize = true});
  config.rope =
      ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 150'000, .gguf_truncate = false});
  config.windows = ReadWindows(
      read, config.decoder.layers, [](int32_t layer, int32_t) { return layer % 2 == 0; }, 0, 128);
  // Other names of num_experts_per_tok and of the context before YaRN; which tensors are in MXFP4 is what is stored.
  read.Ignore({"experts_per_token", "initial_context_length", "quantization_config"});
  config.sinks = true;
  config.attention_bias = config.out_bias = Bias::kPresent;
  if (!read.Boolean({"attention_bias", ""}, true)) read.Fail("attention_bias false is not supported");
  config.mixture.router_bias = Bias::kPresent;
  config.mixture.clamp = static_cast<float>(read.Positive({"swiglu_limit", ""}, 1e6, 7));
  config.names.router = {"mlp.router", "ffn_gate_inp"};
  config.mlp_norm = {"post_attention_layernorm", "post_attention_norm"};
  config.bind_experts = BindGptOssExperts;
  return BuildMoeDecoder(read, std::move(files), config);
}

}  // namespace quire::runner::models
