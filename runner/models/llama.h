// Llama and the families whose block is Llama's: h += attention(norm(h)); h += swiglu(norm(h)).
#pragma once

#include <memory>
#include <vector>

#include "api/base/error.h"
#include "runner/models/decoder.h"

namespace quire::runner::models {

// The differences of a family from Llama.
struct LlamaConfig {
  DecoderConfig decoder;
  int32_t feed_forward = 0;
  RopeSpec rope = {};
  std::vector<int32_t> windows = {};    // [layers], 0 = full attention
  bool head_norms = false;              // of each query and key head
  Bias attention_bias = Bias::kAbsent;  // of q, k and v
  Bias out_bias = Bias::kAbsent;
  Bias mlp_bias = Bias::kAbsent;
};

api::Result<std::unique_ptr<Model>> BuildLlama(ConfigReader& read,
                                               std::shared_ptr<const weights::ModelFiles> files,
                                               const LlamaConfig& config);

}  // namespace quire::runner::models
