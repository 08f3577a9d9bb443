// The validated configuration of a Qwen3-Next, Qwen3.5 or Qwen4-Exp checkpoint, from either file format, and
// the parts that these have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "runner/kernels/gated_delta.h"
#include "runner/models/decoder.h"
#include "runner/models/decoder_config.h"
#include "runner/models/gated_delta.h"
#include "runner/models/moe.h"
#include "runner/models/rope.h"

namespace quire::runner::models {

struct Qwen3NextConfig {
  DecoderConfig decoder;
  RopeSpec rope;
  std::vector<bool> is_attention;  // [layers]; the others are delta nets
  kernels::GatedDeltaShape delta;
  int32_t conv_kernel = 0;
  bool grouped_projections = false;  // q, k, v, z (and b, a) of each key head together
  int32_t feed_forward = 0;          // of dense layers; 0 where there are none

  std::vector<bool> is_sparse;  // [layers]; those with experts
  int32_t experts = 0;
  int32_t experts_used = 0;
  int32_t expert_feed_forward = 0;
  int32_t shared_feed_forward = 0;
  bool normalize = true;

  int32_t mtp_layers = 0;  // GGUF: blocks behind the last layer that predict further tokens
};

Qwen3NextConfig ReadQwen3NextConfig(ConfigReader& read);

// A delta net, all but its place in the cache; and the experts, all but the shared one.
GatedDeltaNet BindQwenDelta(const TensorScope& scope, const Qwen3NextConfig& config);
MixtureOfExperts BindQwenExperts(const TensorScope& scope, const Qwen3NextConfig& config);
inline constexpr MlpNames kQwenSharedNames = {.gate = {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                              .up = {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                              .down = {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};

}  // namespace quire::runner::models
