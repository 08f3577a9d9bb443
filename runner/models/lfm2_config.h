// The validated configuration of an LFM2 checkpoint, from either file format.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/models/decoder_config.h"
#include "runner/models/rope.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

struct Lfm2Config {
  DecoderConfig decoder;
  RopeSpec rope;
  int32_t feed_forward = 0;  // of dense layers, after the published adjustments
  int32_t conv_kernel = 0;   // >= 2
  int32_t window = 0;        // of the attention layers; 0 = full attention
  Bias conv_bias = Bias::kAbsent;
  std::vector<bool> is_attention;  // [layers]; the others are convolutions

  // LFM2-MoE: layers from `dense_layers` on have experts.
  int32_t dense_layers = 0;
  int32_t experts = 0;
  int32_t experts_used = 0;
  int32_t expert_feed_forward = 0;
  bool expert_bias = false;
  bool normalize = true;
  float expert_scale = 1;
};

// Errors name the file, the key and the reason: a value that is missing, out of range or at odds with
// another.
Lfm2Config ReadLfm2Config(ConfigReader& read);

}  // namespace quire::runner::models
