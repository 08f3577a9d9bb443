#include "runner/models/decoder_form.h"
#include "runner/models/families.h"
#include "runner/models/gpt_oss_experts.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadGptOss(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const RopeQuery rope{.default_theta = 150'000, .required = true, .gguf_truncate = false};
  DecoderForm form = ReadMixtureForm(read, {.given = {.norm_eps = 1e-5F}, .rope = rope}, {.normalize = true});
  form.SetWindows(ReadWindows(
      read, form.decoder.layers, [](int32_t layer, int32_t) { return layer % 2 == 0; }, 0, 128));
  ReadSlidingRope(read, rope, &form);
  // Other names of num_experts_per_tok and of the context before YaRN; which tensors are in MXFP4 is what is
  // stored.
  read.Ignore({"experts_per_token", "initial_context_length", "quantization_config"});
  if (form.decoder.activation != Activation::kSilu) read.Fail("hidden_act: only silu is supported");
  for (LayerForm& layer : form.layers) layer.sinks = true;
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias", true);
  form.mixture.config.router_bias = Bias::kPresent;
  form.mixture.config.clamp.limit = static_cast<float>(read.Positive({"swiglu_limit", ""}, 1e6, 7));
  form.mixture.names.router = {"mlp.router", "ffn_gate_inp"};
  form.mixture.bind_experts = BindGptOssExperts;
  form.names.mlp_norm = {"post_attention_layernorm", "post_attention_norm"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
