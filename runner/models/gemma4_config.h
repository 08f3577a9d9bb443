// The validated configuration of a Gemma 4 text model or its assistant, from either file format.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/models/decoder_config.h"
#include "runner/models/rope.h"

namespace quire::runner::models {

struct Gemma4Config {
  DecoderConfig decoder;  // head_dim and kv_heads are those of sliding layers
  int32_t full_head_dim = 0;
  RopeSpec sliding_rope, full_rope;
  std::vector<int32_t> windows;       // [layers], 0 = full attention
  std::vector<int64_t> kv_heads;      // [layers]
  std::vector<int64_t> feed_forward;  // [layers]
  int32_t own_layers = 0;             // the layers behind these use the keys of the last one of their kind
  int32_t per_layer_width = 0;        // of the per-token embedding that each layer gets; 0 = none
  int32_t per_layer_vocab = 0;
  int32_t image_token = 0;        // whose per-token embedding the rows of images get
  bool images_both_ways = false;  // in sliding layers
  int32_t experts = 0;            // beside the feed-forward layer; 0 = none
  int32_t experts_used = 0;
  int32_t expert_feed_forward = 0;
  float logit_cap = 0;  // 0 = none

  int32_t head_dim(size_t layer) const { return windows[layer] > 0 ? decoder.head_dim : full_head_dim; }
};

Gemma4Config ReadGemma4Config(ConfigReader& read);

}  // namespace quire::runner::models
