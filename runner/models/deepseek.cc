#include <algorithm>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

// Some GGUF files of V3 and GLM-4.7-Flash do not name their score, which V2's never do; V2 has no bias of the
// choice.
bool IsSecond(const weights::ModelFiles& files) {
  if (files.format() != weights::Format::kGguf) return files.architecture() == "deepseek_v2";
  return std::ranges::none_of(files.tensors(), [](const weights::Tensor& tensor) {
    return tensor.name.ends_with(".exp_probs_b.bias");
  });
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadDeepSeek(std::shared_ptr<const weights::ModelFiles> files) {
  using Score = MixtureConfig::Score;
  ConfigReader read(*files);
  const bool second = IsSecond(*files);
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
                       .groups_kept = second || lite ? 1 : 4,
                       .greedy = second,
                       .as_stored = true});
  // What latent attention derives from other keys, and how others distribute experts.
  read.Ignore({"qk_head_dim", "head_dim", "num_key_value_heads", "ep_size"});
  // Published code and transformers disagree about its meaning for V2.
  if (second && !read.gguf() && form.mixture.config.normalize) {
    read.Fail("norm_topk_prob: only false is supported for this family");
  }
  form.mlp_bias = ReadBias(read, "mlp_bias");
  if (read.gguf()) form.query_growth = ReadQueryGrowth(read, "attention.temperature_length");
  const bool adjacent = read.Boolean({"rope_interleave", ""}, true);
  form.ropes[0].pairs = adjacent ? kernels::RopePairs::kAdjacent : kernels::RopePairs::kHalves;
  return BuildDeclared(read, std::move(files), form);
}

// Llama's attention, and softmax experts whose weights need not add up to 1.
api::Result<std::unique_ptr<Model>> LoadDeepSeekV1(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadMixtureForm(read,
                      {.given = {.norm_eps = 1e-6F},
                       .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}},
                      {.normalize = false, .shared = 2, .greedy = true, .as_stored = true});
  if (form.mixture.config.groups != 1) read.Fail("n_group: only 1 is supported for this family");
  read.Ignore({"ep_size"});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
