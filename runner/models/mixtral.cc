#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadMixtral(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  DecoderForm form = ReadMixtureForm(
      read,
      {.given = {.norm_eps = 1e-5F},
       .rope = {.default_theta = read.gguf() ? 1e4 : 1e6, .gguf_pairs = kernels::RopePairs::kAdjacent}},
      {.normalize = true});
  form.SetWindows(ReadWindows(read, form.decoder.layers, [](int32_t, int32_t) { return true; }));
  form.mixture.names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
  form.mixture.names.experts = kMixtralExperts;
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
