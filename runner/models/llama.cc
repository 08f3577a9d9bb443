#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadLlama(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  if (read.Find({"", "expert_count"}) != nullptr) return LoadMixtral(std::move(files));
  DecoderForm form =
      ReadDecoderForm(read, {.given = {.context = 2048, .norm_eps = 1e-6F},
                             .rope = {.default_theta = 10000, .gguf_pairs = kernels::RopePairs::kAdjacent}});
  form.attention_bias = form.out_bias = ReadBias(read, "attention_bias");
  form.mlp_bias = ReadBias(read, "mlp_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
