#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

// Hunyuan 3: Qwen3's attention; sigmoid scores with a bias of the choice, a shared expert.
api::Result<std::unique_ptr<Model>> LoadHyV3(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read, {.given = {.head_dim = 128, .norm_eps = 1e-5F}, .rope = {.default_theta = 11158840}},
      {.score = MixtureConfig::Score::kSigmoid, .first_dense = 1, .shared = 1});
  form.qk_norm = QkNorm::kHeads;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  form.mixture.config.scale = static_cast<float>(read.Positive({"router_scaling_factor", ""}, 1e6, 2.826));
  // Sums are float32 either way.
  read.Ignore({"enable_moe_fp32_combine"});
  MixtureNames& names = form.mixture.names;
  names.router = {"mlp.router.gate", ""};
  names.choice_bias = {"mlp.expert_bias", ""};
  names.shared = {.gate = {"mlp.shared_mlp.gate_proj", ""},
                  .up = {"mlp.shared_mlp.up_proj", ""},
                  .down = {"mlp.shared_mlp.down_proj", ""}};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
