#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadPhiMoe(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const bool gguf = read.gguf();
  const bool head_bias =
      gguf ? files->Find("output.bias") != nullptr : read.Boolean({"lm_head_bias", ""}, false);
  DecoderForm form = ReadMixtureForm(read,
                                     {.given = {.norm = NormKind::kLayer,
                                                .norm_eps = 1e-5F,
                                                .head_bias = head_bias ? Bias::kPresent : Bias::kAbsent},
                                      .rope = {.default_theta = gguf ? 1e4 : 1e6}},
                                     {});
  form.SetWindows(ReadWindows(read, form.decoder.layers, [](int32_t, int32_t) { return true; }));
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.names.attention.qkv = {"", "attn_qkv"};
  MixtureConfig& mixture = form.mixture.config;
  mixture.score = MixtureConfig::Score::kSparseMixer;
  if (mixture.chosen != 2) read.Fail("num_experts_per_tok: only 2 is supported");
  mixture.jitter = static_cast<float>(gguf ? 0.01 : read.Positive({"router_jitter_noise", ""}, 1, 0.01));
  read.Ignore({"input_jitter_noise"});  // of training
  form.mixture.names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
  form.mixture.names.experts = kMixtralExperts;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
