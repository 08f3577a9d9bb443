// What an LFM2 checkpoint says about itself, from either file format, checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "runner/weights/model_files.h"

namespace quire::runner::models {

struct Lfm2Config {
  int32_t vocab = 0;
  int32_t hidden = 0;
  int32_t feed_forward = 0;  // after the published adjustments
  int32_t heads = 0;
  int32_t kv_heads = 0;  // divides heads
  int32_t head_dim = 0;  // even
  int32_t context = 0;
  int32_t conv_kernel = 0;  // >= 2
  bool conv_bias = false;
  bool tied = true;  // the head is the embedding
  float norm_eps = 0;
  double rope_theta = 0;
  std::vector<bool> is_attention;  // [layers]; the others are convolutions
};

// kBadModel names the file, the key and the reason: a value that is missing, out of range or at odds with
// another.
api::Result<Lfm2Config> ReadLfm2Config(const weights::ModelFiles& files);

// The names of a tensor in the two formats, without prefix and ".weight".
struct Lfm2TensorName {
  std::string_view hugging_face;
  std::string_view gguf;
};

// "model.layers.3.conv.in_proj.weight" or "blk.3.shortconv.in_proj.weight".
std::string LayerTensor(weights::Format format, size_t layer, Lfm2TensorName name);

}  // namespace quire::runner::models
