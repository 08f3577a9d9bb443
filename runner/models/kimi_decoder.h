// Decoders of Kimi delta nets and latent attention: Kimi Linear, Ling 3.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "runner/models/decoder.h"
#include "runner/models/kimi_delta.h"
#include "runner/models/latent_attention.h"
#include "runner/models/mixture_config.h"
#include "runner/models/rope.h"

namespace quire::runner::models {

// Gates of the delta nets are stored as two matrices of a low rank, or as one, then as `up`.
struct KimiNames {
  TensorName embedding, q, k, v, q_taps, k_taps, v_taps;
  TensorName decay_down, decay_up, gate_down, gate_up, beta;
  TensorName rate, time_bias;  // complete
  TensorName norm, out;
  LatentNames latent;
  TensorName latent_gate;
  MixtureNames mixture;
};

struct KimiConfig {
  DecoderConfig decoder = {};
  LatentAttentionShape latent = {};
  std::optional<RopeSpec> rope = {};                       // of latent attention
  OutputGate::Kind latent_gate = OutputGate::Kind::kNone;  // one factor per head
  std::vector<bool> attends = {};                          // [layers]; the others are delta nets
  kernels::GatedDeltaShape delta = {};
  bool low_rank = true;        // the gates of delta nets
  float bound = 0;             // KimiDelta
  bool rates_negated = false;  // a GGUF file has -exp(A_log) in place of exp(A_log)
  int32_t kernel = 0;
  int32_t feed_forward = 0;  // of dense layers
  MixtureConfig mixture = {};
};

// The last step of a family's loader.
api::Result<std::unique_ptr<Model>> BuildKimi(ConfigReader& read,
                                              std::shared_ptr<const weights::ModelFiles> files,
                                              const KimiConfig& config, const KimiNames& names);

// Counted as llama.cpp does it: a GGUF file has KV heads where a layer attends.
std::vector<bool> ReadStoredKinds(ConfigReader& read, int32_t layers);

}  // namespace quire::runner::models
