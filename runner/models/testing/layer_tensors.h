// The tensors and keys of small models that tests make of the checkpoint in tests/data/models/llama.
#pragma once

#include <string>
#include <vector>

#include "runner/models/testing/moe_models.h"

namespace quire::runner::models::test {

inline constexpr int64_t kHiddenSize = 64, kQueryHeads = 4, kSharedHeads = 2, kHeadDim = 16, kMlpWidth = 48;
inline constexpr int64_t kHybridExperts = 6, kExpertWidth = 24;

// One layer's tensors.
class LayerTensors {
 public:
  LayerTensors(PatchedModelFiles& files, const std::string& prefix, int layer)
      : files_(files), prefix_(prefix + "layers." + std::to_string(layer) + ".") {}

  void Put(const std::string& name, const std::vector<int64_t>& shape) const {
    PutRandom(files_, prefix_ + name, shape);
  }
  void Linear(const std::string& name, int64_t out, int64_t in, bool bias = false) const {
    Put(name + ".weight", {out, in});
    if (bias) Put(name + ".bias", {out});
  }
  void Norm(const std::string& name, int64_t size) const {
    files_.AddF32(prefix_ + name + ".weight", {size}, 0.9F);
  }
  void Attention(const std::string& name, bool bias) const {
    Linear(name + ".q_proj", kQueryHeads * kHeadDim, kHiddenSize, bias);
    Linear(name + ".k_proj", kSharedHeads * kHeadDim, kHiddenSize, bias);
    Linear(name + ".v_proj", kSharedHeads * kHeadDim, kHiddenSize, bias);
    Linear(name + ".o_proj", kHiddenSize, kQueryHeads * kHeadDim, bias);
  }
  void Mlp(const std::string& name, int64_t width, bool bias = false) const {
    Linear(name + ".gate_proj", width, kHiddenSize, bias);
    Linear(name + ".up_proj", width, kHiddenSize, bias);
    Linear(name + ".down_proj", kHiddenSize, width, bias);
  }

  struct Mixer {
    int64_t heads, head_dim, groups, state, kernel;
    bool in_bias, conv_bias, out_bias, norm;
  };
  void Mamba2(const std::string& name, const Mixer& mixer) const {
    const int64_t inner = mixer.heads * mixer.head_dim, channels = inner + 2 * mixer.groups * mixer.state;
    Linear(name + ".in_proj", inner + channels + mixer.heads, kHiddenSize, mixer.in_bias);
    Put(name + ".conv1d.weight", {channels, 1, mixer.kernel});
    if (mixer.conv_bias) Put(name + ".conv1d.bias", {channels});
    for (const char* vector : {".A_log", ".D", ".dt_bias"}) Put(name + vector, {mixer.heads});
    if (mixer.norm) Norm(name + ".norm", inner);
    Linear(name + ".out_proj", kHiddenSize, inner, mixer.out_bias);
  }

 private:
  PatchedModelFiles& files_;
  std::string prefix_;
};

// config.json of a family with `layers` layers and some keys.
void Configure(PatchedModelFiles& files, const char* model_type, int layers, const Json& keys);
// Those of attention with the shapes above.
const Json& AttentionKeys();

}  // namespace quire::runner::models::test
