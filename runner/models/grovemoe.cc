#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// Qwen3-MoE, and a second, small expert for each group of experts.
api::Result<std::unique_ptr<Model>> LoadGroveMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(read, {.given = {.norm_eps = 1e-6F}, .rope = {.default_theta = 10000}},
                                     {.normalize = true, .all_sparse = true});
  form.qk_norm = QkNorm::kHeads;
  MixtureConfig& mixture = form.mixture.config;
  mixture.group_size = read.Small({"", "experts_per_group"}, 1, mixture.experts);
  mixture.group_width = read.Small({"", "expert_chunk_feed_forward_length"}, 1, kMaxWidth);
  mixture.group_scale = static_cast<float>(read.Positive({"", "expert_group_scale"}, 1e6));
  if (mixture.group_size > 0 &&
      (mixture.experts % mixture.group_size != 0 || mixture.chosen > mixture.experts / mixture.group_size)) {
    read.Fail("experts_per_group: experts are not whole groups, or more are chosen than there are groups");
  }
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
