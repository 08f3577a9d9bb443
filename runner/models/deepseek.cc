#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadDeepSeek(std::shared_ptr<const weights::ModelFiles> files) {
  using Score = MixtureConfig::Score;
  ConfigReader read(*files);
  // GGUF files of V2 do not name their score, and have no bias of the choice.
  const bool second = read.gguf() || files->architecture() == "deepseek_v2";
  DecoderForm form = ReadMixtureForm(read, {.given = {.kv_heads = -1, .head_dim = -1, .norm_eps = 1e-6F}},
                                     {.score = second ? Score::kSoftmax : Score::kSigmoid,
                                      .normalize = !second,
                                      .scale = second ? 1 : 2.5,
                                      .first_dense = second ? 0 : 3,
                                      .shared = second ? 2 : 1,
                                      .groups = second ? 1 : 8,
                                      .groups_kept = second ? 1 : 4});
  // What latent attention derives from other keys, and how others distribute experts.
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads", "ep_size"});
  const bool adjacent = read.Boolean({"rope_interleave", ""}, true);
  form.ropes[0].pairs = adjacent ? kernels::RopePairs::kAdjacent : kernels::RopePairs::kHalves;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
