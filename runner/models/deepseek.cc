#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadDeepSeek(std::shared_ptr<const weights::ModelFiles> files) {
  using Score = MixtureConfig::Score;
  ConfigReader read(*files);
  // GGUF files of V2 do not name their score, and have no bias of the choice.
  const bool second = read.gguf() || files->architecture() == "deepseek_v2";
  const bool lite = files->architecture() == "glm4_moe_lite";
  DecoderForm form =
      ReadMixtureForm(read, {.given = {.kv_heads = -1, .head_dim = -1, .norm_eps = lite ? 1e-5F : 1e-6F}},
                      {.score = second ? Score::kSoftmax : Score::kSigmoid,
                       .normalize = !second,
                       .scale = second ? 1
                                : lite ? 1.8
                                       : 2.5,
                       .first_dense = second ? 0
                                      : lite ? 1
                                             : 3,
                       .shared = second ? 2 : 1,
                       .groups = second || lite ? 1 : 8,
                       .groups_kept = second || lite ? 1 : 4});
  // What latent attention derives from other keys, and how others distribute experts.
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads", "ep_size"});
  // Published code and transformers disagree about its meaning for V2.
  if (second && !read.gguf() && form.mixture.config.normalize) {
    read.Fail("norm_topk_prob: only false is supported for this family");
  }
  form.mlp_bias = ReadBias(read, "mlp_bias");
  const bool adjacent = read.Boolean({"rope_interleave", ""}, true);
  form.ropes[0].pairs = adjacent ? kernels::RopePairs::kAdjacent : kernels::RopePairs::kHalves;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
