#include "runner/models/decoder_form.h"
#include "runner/models/families.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadErnie45(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  constexpr auto kInterleaved = kernels::RopePairs::kInterleaved;
  DecoderForm form = ReadDecoderForm(
      read, {.given = {.head_dim = read.gguf() ? 0 : 128, .norm_eps = 1e-5F},
             .tied = TiedByDefault::kYes,
             .rope = {.default_theta = 500000, .pairs = kInterleaved, .gguf_pairs = kInterleaved}});
  read.Require("compression_ratio", 1.0);
  read.Require("use_rmsnorm", true);
  form.attention_bias = form.out_bias = form.mlp_bias = ReadBias(read, "use_bias");
  return BuildDeclared(read, std::move(files), form);
}

}  // namespace quire::runner::models
