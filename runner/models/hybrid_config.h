// What configurations of hybrid families have in common.
#pragma once

#include <cstdint>
#include <optional>

#include "runner/models/config_reader.h"
#include "runner/models/hybrid_form.h"

namespace quire::runner::models {

struct HybridQuery {
  DecoderConfig given = {};  // see ReadDecoderConfig
  TiedByDefault tied = TiedByDefault::kIfNoHead;
  bool attends = true;     // false: no layer of the family has attention
  bool layer_eps = false;  // the RMS norms' epsilon is called layer_norm_epsilon
};

// Shape, heads, activation (SiLU, nothing else). The layers with KV heads of a GGUF file attend. Keys without
// a meaning for the result (chunk sizes, ranges of initialization) are accounted for.
HybridForm ReadHybridForm(ConfigReader& read, const HybridQuery& query);

// The keys of Mamba-2 in config.json; GGUF has one set. Null: a family has no such key.
struct Mamba2Keys {
  const char *heads, *head_dim, *groups, *state, *kernel;
  const char* expand = nullptr;  // inner size / hidden size
  const char* inner = nullptr;   // the inner size itself, before `expand`
  const char *in_bias, *conv_bias, *out_bias;
};

// As the families of IBM have them.
inline constexpr Mamba2Keys kGraniteMambaKeys = {.heads = "mamba_n_heads",
                                                 .head_dim = "mamba_d_head",
                                                 .groups = "mamba_n_groups",
                                                 .state = "mamba_d_state",
                                                 .kernel = "mamba_d_conv",
                                                 .expand = "mamba_expand",
                                                 .in_bias = "mamba_proj_bias",
                                                 .conv_bias = "mamba_conv_bias",
                                                 .out_bias = "mamba_proj_bias"};

// The rank of Mamba-1's time steps: a number, or "auto".
int64_t ReadStepRank(ConfigReader& read, ConfigKey key, int32_t hidden);

MambaForm ReadMamba2(ConfigReader& read, const Mamba2Keys& keys, int32_t hidden);

}  // namespace quire::runner::models
