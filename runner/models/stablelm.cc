#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadStableLm(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 4096, .norm = NormKind::kLayer, .norm_eps = 1e-5F},
                             .rope = {.default_theta = 10000, .default_partial = 0.25}});
  const bool parallel = read.gguf() ? files->Find("blk.0.ffn_norm.weight") == nullptr
                                    : read.Boolean({"use_parallel_residual", ""}, false);
  if (parallel) form.norms = NormPlaces::kParallel;
  const bool normed = read.gguf() ? files->Find("blk.0.attn_q_norm.weight") != nullptr
                                  : read.Boolean({"qk_layernorm", ""}, false);
  if (normed) form.qk_norm = QkNorm::kLayerHeads;
  form.names.attention.q_norm = {"self_attn.q_layernorm", "attn_q_norm"};
  form.names.attention.k_norm = {"self_attn.k_layernorm", "attn_k_norm"};
  form.attention_bias = ReadBias(read, "use_qkv_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
