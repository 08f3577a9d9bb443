// Rotary position embeddings and the ways to stretch them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runner/kernels/elementwise.h"
#include "runner/models/config_reader.h"
#include "runner/models/forward_context.h"

namespace quire::runner::models {

// Which angles and how long: pair i of a head is rotated by position * frequencies[i] and grows by
// `magnitude`.
struct RopeSpec {
  std::vector<float> frequencies = {};  // [pairs]; 0 leaves a pair as it is
  float magnitude = 1;
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  // LongRoPE: the frequencies of a context of at most `short_context` tokens.
  std::vector<float> short_frequencies = {};
  float short_magnitude = 1;
  int64_t short_context = 0;
  // M-RoPE: which of Batch::rope_positions a pair's angle follows, [pairs]; empty: none of them.
  std::vector<uint8_t> axes = {};
};

// How M-RoPE's sections of time, height and width share the pairs of a head.
enum class RopeSections : uint8_t {
  kNone,         // positions are plain
  kContiguous,   // one section after the other (Qwen2-VL)
  kInterleaved,  // t h w t h w ..., and time where a section has ended (Qwen3-VL)
};

// The configuration keys that a family reads.
struct RopeQuery {
  int32_t head_dim = 0;
  // "sliding_attention", "full_attention": where a configuration has parameters per kind of layer. Empty: one
  // for all.
  std::string_view layer_type = {};
  ConfigKey theta = {"rope_theta", "rope.freq_base"};  // outside of rope_parameters
  double default_theta = 0;                            // 0: it must be given
  double default_partial = 1;                          // the share of a head that is rotated
  std::optional<double> partial = {};                  // this share, whatever the configuration says
  std::optional<double> base = {};                     // this base, whatever the configuration says
  bool partial_allowed = default_partial != 1;  // a configuration may say another share than the default
  bool required =
      false;  // an error without rope_parameters and rope_scaling: programs differ in what that means
  ConfigKey dimensions = {"", "rope.dimension_count"};
  double gguf_partial = 1;  // the share of those of a GGUF that is rotated
  bool scaled = true;       // false: rope_scaling, rope.scaling.* and rope_freqs.weight are for other layers
  // How the family's rows are arranged in its checkpoints and in its GGUF files.
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  kernels::RopePairs gguf_pairs = kernels::RopePairs::kHalves;
  bool gguf_truncate = true;  // YaRN's, where a GGUF does not say
  bool fixed_ntk = false;     // "ntk" is FixedNtkFrequencies
  RopeSections sections = RopeSections::kNone;
  std::array<int32_t, 3> given_sections = {};  // where the configuration does not say
};

// Default, linear, llama3, YaRN (Peng et al. 2023), LongRoPE (Ding et al. 2024), proportional (Gemma 4) and
// dynamic with an alpha (Hunyuan) embeddings; any other type is an error.
RopeSpec ReadRope(ConfigReader& read, const RopeQuery& query);

// The stretched frequencies, f = theta^(-2i / dims) to begin with, in the published formulas.
struct Llama3Scaling {
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4, original_context = 8192;
};
std::vector<float> Llama3Frequencies(double theta, int32_t dims, const Llama3Scaling& scaling);

struct YarnScaling {
  double factor = 1, original_context = 0, beta_fast = 32, beta_slow = 1;
  bool truncate = true;  // whole dimensions for the ramp's ends
};
std::vector<float> YarnFrequencies(double theta, int32_t dims, const YarnScaling& scaling);

// The GTE models' form (kexue.fm/archives/9706): the base and then all frequencies are stretched, or with
// `mixed` each frequency by a power of its own that grows to `factor`.
std::vector<float> FixedNtkFrequencies(double theta, int32_t dims, double factor,
                                       std::optional<double> mixed);

// Computes the angles of a pass once; all layers of the pass then use them. Engine thread only.
class RotaryEmbedding {
 public:
  RotaryEmbedding() = default;
  explicit RotaryEmbedding(RopeSpec spec) : spec_(std::move(spec)) {}

  // The model's context: chooses LongRoPE's frequencies, one choice for all positions and sequences. Until
  // then they are those of a long context. REQUIRES: no keys are cached.
  void SetContext(int64_t tokens);

  void Prepare(const ForwardContext& ctx);
  // x [rows, heads, head_dim], in place.
  void Apply(const ForwardContext& ctx, int32_t head_dim, std::span<float> x) const;
  // Rotates keys [tokens, head_dim], stored at some positions, to those `shift` later. No pass is needed.
  void Shift(int64_t shift, int32_t head_dim, std::span<float> keys) const;

 private:
  RopeSpec spec_;
  Scratch cos_memory_, sin_memory_;  // [rows, pairs]
  std::span<float> cos_, sin_;
};

}  // namespace quire::runner::models
