#include <algorithm>

#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// Hunyuan 3: Qwen3's attention; sigmoid scores with a bias of the choice, a shared expert.
api::Result<std::unique_ptr<Model>> LoadHyV3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read,
      {.given = {.head_dim = read.gguf() ? 0 : 128, .norm_eps = 1e-5F}, .rope = {.default_theta = 11158840}},
      {.score = MixtureConfig::Score::kSigmoid, .first_dense = 1, .shared = 1, .as_stored = true});
  form.qk_norm = QkNorm::kHeads;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  MixtureConfig& mixture = form.mixture.config;
  if (read.gguf()) {
    mixture.shared_width =
        read.Small({"", "expert_shared_feed_forward_length"}, 0, kMaxWidth, mixture.shared_width);
  } else {
    mixture.scale = static_cast<float>(read.Positive({"router_scaling_factor", ""}, 1e6, 2.826));
  }
  // Sums are float32 either way.
  read.Ignore({"enable_moe_fp32_combine"});
  MixtureNames& names = form.mixture.names;
  names.router = {"mlp.router.gate", "ffn_gate_inp"};
  // llama.cpp's converter leaves out ".bias" here.
  const bool bare = std::ranges::any_of(
      files->tensors(), [](const weights::Tensor& tensor) { return tensor.name.ends_with(".exp_probs_b"); });
  mixture.choice_bias = mixture.choice_bias || bare;
  names.choice_bias = {"mlp.expert_bias", bare ? "exp_probs_b" : "exp_probs_b.bias"};
  names.shared = {.gate = {"mlp.shared_mlp.gate_proj", "ffn_gate_shexp"},
                  .up = {"mlp.shared_mlp.up_proj", "ffn_up_shexp"},
                  .down = {"mlp.shared_mlp.down_proj", "ffn_down_shexp"}};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
