// A decoder of state-space layers, attention and feed-forward layers as a table of properties: each layer has
// any of them. A family is one small file, as with decoder_form.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "api/base/error.h"
#include "runner/kernels/state_space.h"
#include "runner/models/decoder_form.h"
#include "runner/models/mamba2.h"

namespace quire::runner::models {

// h += attention_out attention(attention_in n(h)) + mamba_out mamba(n(h)); h += feed_forward(n(h)); each
// where the layer has it. Cache: a KV group for the layers with attention, a recurrent layer for those with a
// state space; a layer with both has both.
struct HybridLayer {
  enum class Feed : uint8_t { kNone, kMlp, kExperts };

  bool attends = false;
  bool mamba = false;
  Feed feed = Feed::kNone;

  bool operator==(const HybridLayer&) const = default;
};

// The state-space layers: of Mamba-2, or of Mamba-1 where selective.
struct MambaForm {
  // RMS norms of the time steps, B and C of Mamba-1: none, with weights (Jamba), without (Falcon-Mamba).
  enum class StepNorms : uint8_t { kNone, kWeighted, kPlain };

  bool selective = false;
  kernels::SsdShape shape = {};                 // of Mamba-2
  int64_t inner = 0, state = 0, step_rank = 0;  // of Mamba-1
  StepNorms step_norms = StepNorms::kNone;
  float step_norm_eps = 0;
  int32_t kernel = 0;
  float step_low = 0, step_high = 0;  // limits of a time step
  bool normed = true;                 // a norm beside the gate
  bool norm_first = false;
  int32_t norm_groups = 1;
  float norm_eps = 0;  // of the norm beside the gate; 0 = that of the other norms
  Bias in_bias = Bias::kAbsent, conv_bias = Bias::kPresent, out_bias = Bias::kAbsent;
  // Multipliers of the input, and of the rows of z, x, B, C and dt.
  float in_scale = 1;
  float row_scales[5] = {1, 1, 1, 1, 1};
};

// What tensors are called in a Hugging Face checkpoint. GGUF has one set for all, but for the norms.
struct HybridNames {
  TensorName embedding = {"embed_tokens", "token_embd"};
  TensorName final_norm = {"final_layernorm", "output_norm"};
  TensorName mixer_norm = {"input_layernorm", "attn_norm"};
  TensorName feed_norm = {"pre_ff_layernorm", "ffn_norm"};
  const char* mamba = "mamba";
  AttentionNames attention = {};
  MlpNames mlp = {.gate = {"feed_forward.gate_proj", "ffn_gate"},
                  .up = {"feed_forward.up_proj", "ffn_up"},
                  .down = {"feed_forward.down_proj", "ffn_down"}};
};

struct HybridForm {
  DecoderConfig decoder;
  std::vector<HybridLayer> layers = {};  // [decoder.layers]
  MambaForm mamba = {};
  std::optional<RopeSpec> rope = {};  // none: positions are not encoded
  Bias attention_bias = Bias::kAbsent, attention_out_bias = Bias::kAbsent, mlp_bias = Bias::kAbsent;
  int32_t feed_forward = 0;  // width, of layers without experts
  MixtureForm mixture = {};
  int32_t latent = 0;         // width of what the experts see, in place of the hidden size; 0 = that
  float attention_scale = 0;  // of query and key products; 0 = 1 / sqrt(head_dim)
  float key_scale = 1;
  float attention_in = 1, attention_out = 1, mamba_out = 1;
  float mlp_gate = 1, mlp_out = 1;
  float embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  HybridNames names = {};
};

// The Mamba-2 layer of a decoder layer, all but its place in the cache.
Mamba2 BindMamba2(const TensorScope& scope, const HybridForm& form);

// The last step of a hybrid family's loader.
api::Result<std::unique_ptr<Model>> BuildHybrid(ConfigReader& read,
                                                std::shared_ptr<const weights::ModelFiles> files,
                                                const HybridForm& form);

}  // namespace quire::runner::models
