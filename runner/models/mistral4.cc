#include <cmath>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// DeepSeek V3's attention and experts, but softmax scores, queries that grow with their position, and
// products that do not grow with YaRN.
api::Result<std::unique_ptr<Model>> LoadMistral4(std::shared_ptr<const weights::ModelFiles> files) {
  if (files->format() == weights::Format::kGguf) return LoadDeepSeek(std::move(files));
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(read,
                                     {.given = {.kv_heads = -1, .head_dim = -1, .norm_eps = 1e-6F},
                                      .rope = {.default_theta = 10000, .partial = 1, .required = true}},
                                     {.shared = 1});
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads"});  // follow from other keys
  LatentAttentionShape& latent = *form.latent;
  const double head = latent.plain + latent.rotary;
  latent.scale = static_cast<float>(1 / std::sqrt(head));
  // Said twice: which share of a head is rotated.
  const double rotated =
      read.Positive({"rope_parameters/partial_rotary_factor", ""}, 1, latent.rotary / head);
  if (std::lround(rotated * head) != latent.rotary) {
    read.Fail("rope_parameters/partial_rotary_factor is not qk_rope_head_dim's share of a head");
  }
  form.query_growth = ReadQueryGrowth(read);
  form.mixture.config.normalize_eps = 1e-20F;
  form.mixture.config.group_best = 2;
  const bool adjacent = read.Boolean({"rope_interleave", ""}, true);
  form.ropes[0].pairs = adjacent ? kernels::RopePairs::kAdjacent : kernels::RopePairs::kHalves;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
