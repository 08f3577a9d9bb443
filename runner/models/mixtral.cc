#include "runner/models/families.h"
#include "runner/models/moe_decoder.h"

namespace quire::runner::models {

api::Result<std::unique_ptr<Model>> LoadMixtral(std::shared_ptr<const weights::ModelFiles> files) {
  ConfigReader read(*files);
  MoeDecoderConfig config = ReadMoeDecoder(read, {.norm_eps = 1e-5F}, {.normalize = true});
  config.rope = ReadRope(read, {.head_dim = config.decoder.head_dim,
                                .default_theta = 10000,
                                .gguf_pairs = kernels::RopePairs::kAdjacent});
  config.windows = ReadWindows(read, config.decoder.layers, [](int32_t, int32_t) { return true; });
  config.names.router = {"block_sparse_moe.gate", "ffn_gate_inp"};
  config.names.experts = {.gate = "block_sparse_moe.experts.{}.w1",
                          .up = "block_sparse_moe.experts.{}.w3",
                          .down = "block_sparse_moe.experts.{}.w2",
                          .gate_up_stacked = "mlp.experts.gate_up_proj",
                          .down_stacked = "mlp.experts.down_proj"};
  return BuildMoeDecoder(read, std::move(files), config);
}

}  // namespace quire::runner::models
