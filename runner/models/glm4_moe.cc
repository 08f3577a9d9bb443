#include "runner/models/families.h"
#include "runner/models/moe_decoder.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGlm4Moe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  MoeDecoderConfig config = ReadMoeDecoder(
      read, {.norm_eps = 1e-5F},
      {.score = MixtureConfig::Score::kSigmoid, .normalize = true, .first_dense = 1, .shared = 1});
  config.rope =
      ReadRope(read, {.head_dim = config.decoder.head_dim, .default_theta = 10000, .default_partial = 0.5});
  config.head_norms = read.gguf() ? files->Find("blk.0.attn_q_norm.weight") != nullptr
                                  : read.Boolean({"use_qk_norm", ""}, false);
  config.attention_bias = Bias::kIfStored;
  if (!read.gguf())
    config.attention_bias = read.Boolean({"attention_bias", ""}, false) ? Bias::kPresent : Bias::kAbsent;
  config.mlp_norm = {"post_attention_layernorm", "post_attention_norm"};
  return BuildMoeDecoder(read, std::move(files), config);
}

}  // namespace quire::runner::models
