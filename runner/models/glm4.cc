#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {
namespace {

DecoderForm ReadGlm(ConfigReader& read) {
  constexpr auto kInterleaved = kernels::RopePairs::kInterleaved;
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.head_dim = read.gguf() ? 0 : 128, .norm_eps = 1.5625e-7F},
                             .rope = {.default_theta = 10000,
                                      .default_partial = 0.5,
                                      .pairs = kInterleaved,
                                      .gguf_pairs = kInterleaved}});
  // Files of models with vision have their rows in another order.
  if (read.Find({"", "rope.dimension_sections"}) != nullptr)
    form.ropes[0].pairs = kernels::RopePairs::kHalves;
  form.attention_bias = ReadBias(read, "attention_bias", true);
  form.names.attention.qkv = {"", "attn_qkv"};
  form.names.mlp.gate_up = {"mlp.gate_up_proj", "ffn_up"};
  return form;
}

}  // namespace

api::Result<std::unique_ptr<Model>> LoadGlm(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  const DecoderForm form = ReadGlm(read);
  return BuildDeclared(read, std::move(files), form);
}

api::Result<std::unique_ptr<Model>> LoadGlm4(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadGlm(read);
  form.norms = NormPlaces::kAround;
  form.names.post_attention_norm = {"post_self_attn_layernorm", "post_attention_norm"};
  form.names.mlp_norm = {"post_attention_layernorm", "ffn_norm"};
  form.names.post_mlp_norm = {"post_mlp_layernorm", "post_ffw_norm"};
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
