// The validated configuration of a DeepSeek V4 checkpoint, from either file format.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/compressed_attention.h"
#include "runner/models/decoder_config.h"
#include "runner/models/mixture_config.h"
#include "runner/models/residual_streams.h"
#include "runner/models/rope.h"

namespace quire::runner::models {

struct DeepSeekV4Layer {
  int32_t rate = 0;      // tokens of a block; 0 = the window is all that is seen
  bool chooses = false;  // among the blocks, which overlap
  bool hashed = false;   // tokens have their experts in a table
  kernels::SwigluClamp clamp = {}, shared_clamp = {};
};

struct DeepSeekV4Config {
  DecoderConfig decoder = {};
  CompressedAttentionShape attention = {};
  std::array<RopeSpec, 2> ropes = {};  // of layers with a window only, and of the others
  StreamShape streams = {};
  MixtureConfig mixture = {};
  int32_t index_heads = 0, index_dim = 0, index_best = 0;
  std::vector<DeepSeekV4Layer> layers = {};
};

DeepSeekV4Config ReadDeepSeekV4Config(ConfigReader& read);

}  // namespace quire::runner::models
