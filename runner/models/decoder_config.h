// The validated configuration shared by all decoders, from either file format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/models/config_reader.h"
#include "runner/models/linear.h"
#include "runner/models/mlp.h"
#include "runner/models/tensor_binder.h"

namespace quire::runner::models {

// Far above any published model, low enough that no product of two overflows and nothing big is allocated on
// the word of a configuration alone.
constexpr int32_t kMaxVocab = 1 << 24;
constexpr int32_t kMaxWidth = 1 << 18;
constexpr int32_t kMaxLayers = 1024;
constexpr int32_t kMaxHeads = 4096;
constexpr int32_t kMaxContext = 1 << 30;
constexpr int32_t kMaxExperts = 4096;
constexpr int32_t kMaxConvKernel = 64;

struct DecoderConfig {
  int32_t vocab = 0;
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;  // divides heads
  int32_t head_dim = 0;  // even
  int32_t context = 0;
  NormKind norm = NormKind::kRms;  // of layers and before the head
  float norm_eps = 0;
  Activation activation = Activation::kSilu;                       // of gated feed-forward layers
  kernels::SwigluClamp clamp = {};                                 // likewise
  std::optional<PlainActivation> plain_activation = std::nullopt;  // feed-forward layers are plain
  bool tied = false;                                               // the head is the embedding
  Bias head_bias = Bias::kAbsent;                                  // as given
};

// Whether the head is tied where a configuration does not say.
enum class TiedByDefault : uint8_t { kIfNoHead, kYes };

// `given` holds what published configurations of a family leave out; 0 = nothing. heads are not read where
// given.heads is negative (no layer has attention). kv_heads are not read where
// given.kv_heads is negative (a family with several kinds of attention reads them itself), and neither is
// head_dim where given.head_dim is negative (latent attention). The kind of norm is the given one; an
// activation that the configuration names must be one of a gated layer, or of a plain one where
// given.plain_activation is set.
DecoderConfig ReadDecoderConfig(ConfigReader& read, const DecoderConfig& given = {},
                                TiedByDefault tied = TiedByDefault::kIfNoHead);

// `heads` query heads share `kv_heads` KV heads of `head_dim` elements, or there is an error.
void CheckHeads(ConfigReader& read, int32_t heads, int32_t kv_heads, int32_t head_dim);

// 1 where the configuration does not have the key.
float ReadMultiplier(ConfigReader& read, ConfigKey key);

// The width of the feed-forward layers; the given one where there is no such key, 0: it must be there.
int32_t ReadFeedForward(ConfigReader& read, int32_t given = 0);

// The window of each layer, 0 = full attention: `sliding_window` where layer_types (or the truth values that
// GGUF has for them) say so, else where `slides(layer)`. The given one where there is no such key; all 0
// where it is null.
std::vector<int32_t> ReadWindows(ConfigReader& read, int32_t layers,
                                 bool (*slides)(int32_t layer, int32_t period), int32_t period = 0,
                                 int32_t given_window = 0);

}  // namespace quire::runner::models
